"""The paper's sets are cut as their provenance says, and encoded as a network and the service read them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import default_folder
from benchmarks.paper.networks import BagNetwork, ConvNetwork
from benchmarks.paper.norms import NormedConvNetwork
from benchmarks.paper.published import METRICS, PUBLISHED_AS
from benchmarks.paper.sets import SETS, PaperSet
from benchmarks.paper.sets.files import FILES, ORIGINS
from benchmarks.paper.sets.images import Images, drawn, turned
from benchmarks.paper.sets.moons import fresh_domain
from benchmarks.paper.sets.moons import turned as turned_points
from benchmarks.paper.sets.tabular import Tabular
from benchmarks.paper.sets.texts import Texts, vocabulary, word_codes, words_of
from contracts.errors import NotFound
from contracts.task import Training

DATA = default_folder()
READABLE = [name for name in SETS if name not in {"onp", "m5_hobbies", "m5_household"}]
# Rows of the known domains, and of the test's.
ROWS = {
    "moons": ([200] * 9, 200),
    "moons_fresh": ([200] * 9, 200),
    "mnist": ([1000] * 4, 1000),
    "mnist_normed": ([1000] * 4, 1000),
    "shuttle": ([1233, 287, 2158, 26], 793),
    "shuttle_raw": ([15577, 20651, 18014, 428], 720),
    "reuters": ([1570, 2419, 1496], 841),
    "elec2": ([670, 672, 672, 672, 671, *[672] * 24], 672),
    "elec2_40": ([670, 672, 672, 672, 671, *[672] * 35], 672),
    "elec2_rows": ([670, 672, 672, 672, 671, *[672] * 24], 672),
    "elec2_rows_40": ([670, 672, 672, 672, 671, *[672] * 35], 672),
    "house": ([2119, 2863, 3648, 3908, 4541, 3858], 1385),
    "house_2018": ([2119, 2863, 3648, 3908, 4541], 3858),
    "appliance": ([2058, *[2160] * 7], 2557),
}
TOTALS = {
    "shuttle": 3704,
    "shuttle_raw": 54_670,
    "reuters": 5485,
    "elec2": 19_485,
    "house": 20_937,
    "appliance": 17_178,
}


def load(name: str) -> PaperSet:
    if missing := [file for file in FILES[name] if not (DATA / file).is_file()]:
        pytest.skip(f"{missing[0]} is not here (MORROW_PAPER_DATA)")
    return SETS[name](DATA)


@pytest.mark.parametrize("name", READABLE)
def test_domains_hold_exactly_the_published_rows(name: str) -> None:
    paper_set = load(name)
    known, tested = ROWS[name]
    assert list(paper_set.domain_sizes[: paper_set.test_origin]) == known
    assert paper_set.domain_sizes[paper_set.test_origin] == tested
    assert sum(known) == TOTALS.get(name, sum(known))
    split = paper_set.split(paper_set.test_origin)
    assert (len(split.known.u), len(split.unseen.u), len(split.answers)) == (sum(known), tested, tested)


def test_all_domains_of_elec2_hold_its_27549_rows() -> None:
    assert sum(load("elec2").domain_sizes) == 27_549
    assert load("elec2").num_domains == 41


@pytest.mark.parametrize("name", READABLE)
def test_model_time_is_zero_at_the_edge_and_windows_are_numbered_by_domain(name: str) -> None:
    paper_set = load(name)
    origin, window = paper_set.test_origin, paper_set.clock.window
    split = paper_set.split(origin)
    assert split.known.u.max() < 0 <= split.unseen.u.min()
    assert (np.diff(split.known.u) >= 0).all()
    assert split.unseen.u.max() < 2 * window / paper_set.clock.span
    counts = Counter((split.known.windows // window).tolist())
    assert [counts[domain] for domain in range(origin)] == list(paper_set.domain_sizes[:origin])
    assert set(split.unseen.windows) == {origin * window}


@pytest.mark.parametrize("name", READABLE)
def test_the_unit_of_model_time_is_the_whole_set(name: str) -> None:
    paper_set = load(name)
    assert paper_set.clock.span == paper_set.num_domains * paper_set.clock.window
    if paper_set.task is not None:
        assert paper_set.clock == paper_set.task.clock


@pytest.mark.parametrize("name", READABLE)
def test_answers_are_classes_or_labels_in_the_published_unit(name: str) -> None:
    paper_set = load(name)
    split = paper_set.split(paper_set.test_origin)
    assert split.metric == METRICS[PUBLISHED_AS.get(name, name)]
    if split.is_classification:
        assert set(split.answers) <= set(range(split.num_outputs))
    else:
        assert split.num_outputs == 2
        labels = split.label_unit.means(split.known.targets)
        assert 0 < labels.min() < split.answers.mean() < labels.max()


def test_calendar_phases_are_the_last_columns_and_those_of_the_set_alone() -> None:
    paper_set = load("elec2_rows")
    plain, phased = paper_set.split(29), paper_set.split(29, Training(calendar=("day", "week")))
    assert phased.known.dense.shape[1] == plain.known.dense.shape[1] + 4
    half_hours = phased.unseen.dense[:48, -4:-2]
    np.testing.assert_allclose((half_hours**2).sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(half_hours[[0, 12]], [[0, 1], [1, 0]], atol=1e-6)
    with pytest.raises(ValueError, match="knows the phases"):
        load("moons").split(9, Training(calendar=("day",)))


@pytest.mark.parametrize("origin", [-1, 0, 11])
def test_an_origin_without_domains_on_both_sides_is_refused(origin: int) -> None:
    with pytest.raises(ValueError, match="origins 1 to 10"):
        SETS["moons_fresh"](Path()).split(origin)


@pytest.mark.parametrize("name", [name for name in SETS if FILES[name]])
def test_a_missing_file_is_named_with_its_origin(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refusal:
        SETS[name](tmp_path)
    assert FILES[name][0] in str(refusal.value)
    assert ORIGINS[FILES[name][0]] in str(refusal.value)


def test_every_set_says_which_files_it_needs() -> None:
    assert set(SETS) == set(FILES)
    assert {file for files in FILES.values() for file in files} == set(ORIGINS)


def test_published_prices_are_those_of_the_dated_rows() -> None:
    arrays, rows = load("elec2").split(29).unseen, load("elec2_rows").split(29).unseen
    np.testing.assert_allclose(arrays.dense[:, 3:7], rows.dense[:, 1:5], atol=2e-3)
    np.testing.assert_array_equal(load("elec2").split(29).answers, load("elec2_rows").split(29).answers)


def test_the_papers_moons_are_one_draw_turned() -> None:
    contents = load("moons").contents
    assert isinstance(contents, Tabular)
    points = contents.rows.numbers.reshape(11, 200, 2)
    for number in range(11):
        np.testing.assert_allclose(points[number], turned_points(points[0], number), atol=1e-9)


def test_fresh_moons_follow_the_law_of_the_papers() -> None:
    contents = load("moons").contents
    assert isinstance(contents, Tabular)
    points, classes = contents.rows.numbers[:200], contents.rows.labels[:200]
    draws = [fresh_domain(0, seed) for seed in range(20)]
    for k in (0, 1):
        means = [drawn_points[drawn_classes == k].mean(0) for drawn_points, drawn_classes in draws]
        np.testing.assert_allclose(np.mean(means, axis=0), points[classes == k].mean(0), atol=0.03)
        spread = [drawn_points[drawn_classes == k].std(0) for drawn_points, drawn_classes in draws]
        np.testing.assert_allclose(np.mean(spread, axis=0), points[classes == k].std(0), atol=0.03)


def test_fresh_moons_share_no_point_and_depend_on_their_seed() -> None:
    first, second = (turned_points(fresh_domain(number, 3)[0], -number) for number in (0, 1))
    assert abs(first - second).max(1).min() > 0
    np.testing.assert_array_equal(fresh_domain(1, 3)[0], fresh_domain(1, 3)[0])
    assert (fresh_domain(1, 3)[0] != fresh_domain(1, 4)[0]).all()


def test_digits_turn_counter_clockwise() -> None:
    image = np.zeros((2, 28, 28), np.float32)
    image[1, 3:6, 20:27] = 1
    np.testing.assert_allclose(turned(image, 90)[1], np.rot90(image[1]), atol=1e-6)


def test_no_image_is_drawn_twice() -> None:
    assert len(np.unique(drawn(0, 10_000))) == 5000
    assert (drawn(0, 10_000) != drawn(1, 10_000)).any()


def test_rotated_digits_are_read_by_the_convolutional_network() -> None:
    paper_set = load("mnist")
    contents = paper_set.contents
    assert isinstance(contents, Images)
    assert 0 <= contents.pixels.min() < contents.pixels.max() <= 1
    assert paper_set.split(4).build is ConvNetwork
    assert load("mnist_normed").split(4).build is NormedConvNetwork
    assert paper_set.split(4).known.dense.shape == (4000, 784)


def test_texts_are_codes_of_words_known_before_the_origin() -> None:
    paper_set = load("reuters")
    split = paper_set.split(3)
    contents = paper_set.contents
    assert isinstance(contents, Texts)
    known = vocabulary(contents.words[:5485])
    assert split.build is BagNetwork
    assert split.vocabulary_sizes == (1 + len(known),)
    assert split.known.codes.max() == len(known)
    number = 17
    words = [known[code - 1] for code in split.unseen.codes[number] if code]
    assert words == [word for word in contents.words[5485 + number] if word in set(known)]


def test_a_text_is_its_words_with_one_word_for_all_numbers() -> None:
    assert words_of("Shr 34 cts vs 1.19 dlrs, U.S. <CH>") == ("shr", "0", "cts", "vs", "0", "dlrs", "u", "s", "ch")
    assert len(words_of("word " * 300)) == 200


def test_a_vocabulary_holds_the_words_of_two_texts() -> None:
    known = vocabulary([("oil", "oil", "wheat"), ("wheat", "gas"), ("gas", "rate")])
    assert known == ("gas", "wheat")
    codes = word_codes([("rate", "wheat", "gas")], known)
    assert codes[0, :3].tolist() == [2, 1, 0]
    assert not codes[0, 3:].any()


def test_news_are_cut_by_their_age_in_days(tmp_path: Path) -> None:
    ages = [731, 601, 600, 481, 480, 361, 360, 241, 240, 121, 120, 8]
    lines = ["url, timedelta, n_tokens_title, weekday_is_monday, shares"]
    lines += [f"http://x, {age}.0, {k}.0, 1.0, {1400 + k % 2}" for k, age in enumerate(ages)]
    file = tmp_path / FILES["onp"][0]
    file.parent.mkdir()
    file.write_text("\n".join(lines), "utf-8")
    paper_set = SETS["onp"](tmp_path)
    assert paper_set.domain_sizes == (2, 2, 2, 2, 2, 2)
    split = paper_set.split(paper_set.test_origin)
    assert split.known.dense.shape == (10, 2)
    assert split.known.targets.tolist() == [0, 1] * 5
    assert split.answers.tolist() == [0, 1]
