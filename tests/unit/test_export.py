"""The graph is the encoder and the cohort, and an artefact is refused unless it is what its manifest says."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from contracts.calibration import Calibration
from contracts.columns import NEVER, EventColumns
from contracts.errors import ArtefactRefused
from contracts.manifest import (
    GRAPH_FILE,
    MANIFEST_FILE,
    RATE_FILE,
    Manifest,
    checksum,
    encode_manifest,
    graph_feed,
    read_manifest,
)
from contracts.task import Feature, Target, Task, Training
from trainer.artefact import torch_answers, write_artefact
from trainer.dataset import Encoder, encode, fit_encoder
from trainer.export import build_graph, build_rate_graph
from trainer.graph import open_graph, raw_categories, verify_artefact
from trainer.network import CohortNetwork, architecture

DAY = 86_400_000_000
TEMPERATURE = 1.7
CUTOFF = 16_000 * DAY
NUMBERS = (Feature(name="x", kind="number"), Feature(name="y", kind="number", optional=True))
CATEGORIES = (Feature(name="carrier", kind="category"), Feature(name="origin", kind="category", optional=True))
TRAINING = Training(width=16, trelu_width=4, time_width=5, time_linear=2, embedding=3)


def make_task(
    features: tuple[Feature, ...] = NUMBERS + CATEGORIES, kind: str = "classification", training: Training = TRAINING
) -> Task:
    return Task.model_validate(
        {"name": "t", "features": features, "target": Target(name="z", kind=kind), "window": "P7D"}
        | {"training": training}
    )


def make_rows(task: Task, num_rows: int, seed: int = 0, end: int = CUTOFF) -> EventColumns:
    """Rows of the year before `end`: one number skewed and one often missing, one class and some values rare."""
    random = np.random.default_rng(seed)
    numbers = np.column_stack([random.lognormal(3, 2, num_rows), random.normal(-1e6, 1.0, num_rows)])
    numbers[random.random(num_rows) < 0.2, 1] = np.nan
    vocabularies = (("", "AA", "ÅÅ", "rare", "zz"), ("EWR", "JFK"))
    return EventColumns(
        at=np.sort(random.integers(end - 365 * DAY, end, num_rows)),
        known_at=np.zeros(num_rows, np.int64),
        superseded_at=np.full(num_rows, NEVER),
        numbers=numbers[:, : len(task.numbers)],
        categories=np.column_stack(
            [random.choice(5, num_rows, p=[0.3, 0.3, 0.3, 0.001, 0.099]), random.integers(0, 2, num_rows)]
        ).astype(np.int32)[:, : len(task.categories)],
        vocabularies=vocabularies[: len(task.categories)],
        labels=(
            random.integers(0, 3, num_rows).astype(np.int32)
            if task.is_classification
            else random.normal(5e4, 300.0, num_rows)
        ),
        classes=("no", "perhaps", "yes") if task.is_classification else (),
        withheld=np.zeros(num_rows, np.bool_),
    )


def make_network(
    encoder: Encoder, training: Training, num_members: int, *, is_timed: bool = True, other: tuple[int, ...] = ()
) -> CohortNetwork:
    """A cohort, every parameter moved from its start; `other` are the vocabulary sizes of one more, the first."""
    sizes = ([other] if other else []) + [encoder.vocabulary_sizes] * num_members
    shape = architecture(training, encoder.num_dense, len(encoder.vocabularies), encoder.num_outputs, is_timed)
    network = CohortNetwork(shape, sizes, range(len(sizes)))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return network


def graph_answers(graph: onnx.ModelProto, task: Task, rows: EventColumns) -> NDArray[np.float64]:
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    return np.column_stack(open_graph(graph.SerializeToString()).run(None, feed)).astype(np.float64)


def assert_graph_is_torch(
    task: Task, encoder: Encoder, network: CohortNetwork, members: list[int], rows: EventColumns
) -> None:
    found = graph_answers(build_graph(encoder, network, members), task, rows)
    expected = torch_answers(encoder, network, members, rows)
    unit = 1.0 if task.is_classification else encoder.label_scale
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found / unit, expected / unit, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("num_members", [1, 3, 4])
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("features", [NUMBERS, CATEGORIES, NUMBERS[:1] + CATEGORIES[:1], NUMBERS + CATEGORIES])
def test_graph_answers_as_torch_does(features: tuple[Feature, ...], kind: str, num_members: int) -> None:
    task = make_task(features, kind)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, num_members)
    graph = build_graph(encoder, network, range(num_members))
    session = open_graph(graph.SerializeToString())
    for num_rows in (1, 2, 257):
        rows = make_rows(task, num_rows, seed=num_rows, end=CUTOFF + 90 * DAY)
        found = np.column_stack(session.run(None, graph_feed(task, rows.at, rows.numbers, raw_categories(rows))))
        unit = encoder.label_scale
        expected = torch_answers(encoder, network, range(num_members), rows)
        np.testing.assert_allclose(found / unit, expected / unit, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_trelu": 0},
        {"num_trelu": 1, "num_layers": 3},
        {"time_linear": 0},
        {"time_linear": 5},
        {"calendar": ()},
        {"calendar": ("year",)},
    ],
)
def test_graph_answers_as_torch_does_for_every_architecture(changes: dict[str, object]) -> None:
    task = make_task(training=Training.model_validate(TRAINING.model_dump() | changes))
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    assert_graph_is_torch(task, encoder, network, [0, 1], make_rows(task, 100, seed=1))


def test_graph_of_a_time_oblivious_network_answers_as_torch_does() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2, is_timed=False)
    assert_graph_is_torch(task, encoder, network, [0, 1], make_rows(task, 100, seed=1))


def test_graph_holds_the_chosen_members_of_a_cohort_whose_other_vocabularies_are_larger() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 3, other=(40, 30))
    assert_graph_is_torch(task, encoder, network, [3, 1], make_rows(task, 100, seed=1))


@pytest.mark.parametrize("end", [0, CUTOFF + 1, CUTOFF + 4000 * DAY])
def test_graph_answers_as_torch_does_at_any_time(end: int) -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    rows = make_rows(task, 64, end=end)
    assert end > 0 or rows.at.max() < 0
    assert_graph_is_torch(task, encoder, network, [0, 1], rows)


def test_graph_answers_as_torch_does_on_unseen_missing_and_absurd_values() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    rows = make_rows(task, 6)
    rows.numbers[:] = [[np.nan, np.nan], [1e308, 1e38], [-1e308, 0.0], [np.inf, -np.inf], [5e-324, 1.0], [0.0, -0.0]]
    rows.categories[:, 0] = [0, 3, 4, 1, 2, 0]
    assert "rare" not in encoder.vocabularies[0]
    assert_graph_is_torch(task, encoder, network, [0, 1], rows)


def test_graph_knows_a_fit_without_any_known_category() -> None:
    task = make_task(CATEGORIES)
    encoder = fit_encoder(task, make_rows(task, 4), CUTOFF)
    assert encoder.vocabularies == ((), ())
    assert_graph_is_torch(task, encoder, make_network(encoder, task.training, 2), [0, 1], make_rows(task, 9))


def test_graph_answers_no_rows_with_no_answers() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    graph = build_graph(encoder, make_network(encoder, task.training, 2), [0, 1])
    assert graph_answers(graph, task, make_rows(task, 0)).shape == (0, 3)


def test_regression_answers_with_the_moments_of_the_mixture() -> None:
    task = make_task(NUMBERS, "regression")
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    found = graph_answers(build_graph(encoder, network, [0, 1]), task, make_rows(task, 1))
    standardised = (found[0] - [encoder.label_mean, 0.0]) / encoder.label_scale
    np.testing.assert_allclose(standardised, [2.0, 2**0.5], atol=1e-5)


def test_the_same_cohort_gives_the_same_bytes() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    first, second = (build_graph(encoder, network, [0, 1]).SerializeToString() for _ in range(2))
    assert first == second


@dataclass(frozen=True)
class Written:
    """An artefact on disk, and what it was written from."""

    folder: Path
    manifest: Manifest
    task: Task
    encoder: Encoder
    network: CohortNetwork


@pytest.fixture(params=["classification", "regression"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    task = make_task(kind=request.param)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    return Written(tmp_path / "artefact", write(tmp_path / "artefact", task, encoder, network), task, encoder, network)


def write(folder: Path, task: Task, encoder: Encoder, network: CohortNetwork) -> Manifest:
    rows = make_rows(task, 900)
    return write_artefact(
        folder,
        encoder=encoder,
        network=network,
        members=[0, 1],
        rows=rows,
        task=task,
        schema_id=1,
        horizon=2,
        ages=[],
        calibration=Calibration(TEMPERATURE if task.is_classification else 1.0, []),
        num_rows=len(rows),
        rows_digest=rows.digest,
        read_at=CUTOFF,
        seeds=[0, 1],
        device="cpu",
        git_sha="0" * 40,
    )


def test_a_written_artefact_is_verified_and_answers(written: Written) -> None:
    session = verify_artefact(written.folder)
    rows = make_rows(written.task, 20, seed=3)
    found = np.column_stack(session.run(None, graph_feed(written.task, rows.at, rows.numbers, raw_categories(rows))))
    temperature = written.manifest.calibration.temperature
    expected = torch_answers(written.encoder, written.network, [0, 1], rows, temperature)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert read_manifest(written.folder) == written.manifest
    assert written.manifest.parse_task() == written.task


def test_a_task_of_rules_that_hold_no_longer_is_refused(written: Written) -> None:
    """As whoever meets a kept fit of another time expects: one refused fit must not end the looking at others."""
    aged = msgspec.structs.replace(written.manifest, task={**written.manifest.task, "window": "never"})
    with pytest.raises(ArtefactRefused, match="task cannot be read"):
        aged.parse_task()


def test_the_probe_holds_unseen_and_missing_values_and_moments_after_the_cutoff(written: Written) -> None:
    probe = written.manifest.probe
    assert len(probe.at) == 18
    assert probe.at[-2:] == [CUTOFF, CUTOFF + 7 * DAY]
    assert not {*probe.categories[-2]} & {*written.encoder.vocabularies[0], *written.encoder.vocabularies[1]}
    assert probe.categories[-1] == ["", ""]
    assert probe.numbers[-1] == [None, None]


def test_an_artefact_appears_whole_over_what_a_killed_try_left(written: Written) -> None:
    partial = written.folder.with_name("artefact.partial")
    partial.mkdir()
    (partial / GRAPH_FILE).write_bytes(b"half")
    write(written.folder, written.task, written.encoder, written.network)
    verify_artefact(written.folder)
    assert sorted(path.name for path in written.folder.parent.iterdir()) == ["artefact"]
    assert sorted(path.name for path in written.folder.iterdir()) == [MANIFEST_FILE, GRAPH_FILE, RATE_FILE]


@pytest.mark.parametrize("name", [GRAPH_FILE, RATE_FILE])
def test_a_truncated_graph_is_refused(written: Written, name: str) -> None:
    file = written.folder / name
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ArtefactRefused, match="another checksum"):
        verify_artefact(written.folder)


@pytest.mark.parametrize("name", [GRAPH_FILE, RATE_FILE])
def test_a_graph_that_no_runtime_loads_is_refused(written: Written, name: str) -> None:
    file = written.folder / name
    file.write_bytes(file.read_bytes()[:-100])
    rewrite(written, checksums=written.manifest.checksums | {name: checksum(file)})
    with pytest.raises(ArtefactRefused, match="cannot be loaded"):
        verify_artefact(written.folder)


def test_a_graph_that_answers_otherwise_is_refused(written: Written) -> None:
    outputs = np.array(written.manifest.probe.outputs)
    outputs[0, 0] += 0.01 * (1.0 if written.task.is_classification else written.encoder.label_scale)
    rewrite(written, probe=msgspec.structs.replace(written.manifest.probe, outputs=outputs.tolist()))
    with pytest.raises(ArtefactRefused, match="otherwise"):
        verify_artefact(written.folder)


def test_a_graph_that_answers_with_nan_is_refused(written: Written) -> None:
    with torch.no_grad():
        written.network.head.bias.fill_(float("nan"))
    put_graph(written, GRAPH_FILE, build_graph(written.encoder, written.network, [0, 1]))
    with pytest.raises(ArtefactRefused, match="otherwise"):
        verify_artefact(written.folder)


def test_a_probe_of_other_features_or_without_rows_is_refused(written: Written) -> None:
    probe = written.manifest.probe
    one_short = [row[:1] for row in probe.numbers]
    for broken in (
        msgspec.structs.replace(probe, numbers=one_short),
        msgspec.structs.replace(probe, at=[], numbers=[], categories=[], outputs=[]),
        msgspec.structs.replace(probe, outputs=[row[:1] for row in probe.outputs]),
    ):
        rewrite(written, probe=broken)
        with pytest.raises(ArtefactRefused):
            verify_artefact(written.folder)


def test_a_manifest_of_another_format_is_refused(written: Written) -> None:
    rewrite(written, format_version=1)
    with pytest.raises(ArtefactRefused, match="format 1"):
        verify_artefact(written.folder)


def test_a_rate_graph_of_another_temperature_or_network_is_refused(written: Written) -> None:
    temperature = written.manifest.calibration.temperature
    other = make_network(written.encoder, written.task.training, 3)
    for graph in (
        build_rate_graph(written.encoder, other, [1, 2], temperature),
        *([build_rate_graph(written.encoder, written.network, [0, 1])] if written.task.is_classification else []),
    ):
        put_graph(written, RATE_FILE, graph)
        with pytest.raises(ArtefactRefused, match="otherwise"):
            verify_artefact(written.folder)


def test_an_artefact_that_does_not_vouch_for_its_rates_is_refused(written: Written) -> None:
    rewrite(written, checksums={GRAPH_FILE: written.manifest.checksums[GRAPH_FILE]})
    with pytest.raises(ArtefactRefused, match="does not vouch for rate"):
        verify_artefact(written.folder)


def put_graph(written: Written, name: str, graph: onnx.ModelProto) -> None:
    (written.folder / name).write_bytes(graph.SerializeToString())
    rewrite(written, checksums=written.manifest.checksums | {name: checksum(written.folder / name)})


def rewrite(written: Written, **changes: object) -> None:
    changed = msgspec.structs.replace(written.manifest, **changes)
    (written.folder / MANIFEST_FILE).write_bytes(encode_manifest(changed))


def test_encoding_and_answers_do_not_depend_on_the_batch() -> None:
    task = make_task()
    rows = make_rows(task, 40)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    whole = graph_answers(build_graph(encoder, network, [0, 1]), task, rows)
    alone = [
        graph_answers(build_graph(encoder, network, [0, 1]), task, rows.select(slice(i, i + 1)))[0] for i in (0, 39)
    ]
    np.testing.assert_allclose(whole[[0, 39]], alone, atol=1e-6)
    np.testing.assert_array_equal(encode(encoder, rows).dense[:7], encode(encoder, rows.select(slice(0, 7))).dense)
