"""`morrow task infer` and files of loggers and exports: two columns of a moment, repeated headers, stand-ins, codes."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cli.inferring.guess import Said
from cli.inferring.infer import Inferred, infer
from cli.reading.options import Options
from contracts.errors import InvalidInput

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
NUM_ROWS = 3000


def infer_file(file: Path, options: Options = Options(), **given: Any) -> Inferred:  # noqa: B008 it is frozen
    return infer(file, format=None, name="air", said=Said(**given), options=options, now=NOW)


def logged(file: Path, date: str = "%d.%m.%Y", time: str = "%H.%M.%S", extra: dict[int, str] | None = None) -> Path:
    """Hourly rows as a logger writes them: a date, a time of day, a wind, a temperature and the label in last place.

    `extra` are lines, each before the row of this number.
    """
    rng = random.Random(5)  # noqa: S311 rows, no secrets
    header = "Date;Time;Wind;T °C;PM2,5"
    lines = [header]
    for k in range(NUM_ROWS):
        if extra is not None and k in extra:
            lines.append(extra[k])
        at = BEGIN + timedelta(hours=k)
        cells = (f"{at:{date}}", f"{at:{time}}", rng.choice("NESW"), rng.uniform(-5, 30), rng.uniform(1, 60))
        lines.append(";".join(f"{one:.2f}".replace(".", ",") if isinstance(one, float) else one for one in cells))
    file.write_text("\r\n".join(lines) + "\r\n", "utf-8-sig")
    return file


@pytest.mark.parametrize(
    ("date", "time"),
    [
        ("%d.%m.%Y", "%H.%M.%S"),
        ("%d.%m.%Y", "%H:%M"),
        ("%d.%m.%y", "%H.%M.%S"),
        ("%Y-%m-%d", "%I:%M %p"),
        ("%m/%d/%Y", "%I:%M:%S %p"),
        ("%d/%m/%Y", "%Hh%M"),
        ("%d.%m.%Y", "%H:%M Uhr"),
    ],
)
def test_a_date_and_a_time_of_day_are_one_moment(tmp_path: Path, date: str, time: str) -> None:
    inferred = infer_file(logged(tmp_path / "air.csv", date, time), Options(timezone="UTC"))
    assert f"{NUM_ROWS:,} are valid and 0 would be refused" in inferred.notes[0]
    assert "--map at=Date+Time" in inferred.import_command
    last = BEGIN + timedelta(hours=NUM_ROWS - 1)
    assert f"{NUM_ROWS:,} rows from {BEGIN.isoformat()} to {last.isoformat()}, by Date and Time." in inferred.text
    assert 'name = "time' not in inferred.text


def test_a_form_of_two_columns_is_that_of_both_together(tmp_path: Path) -> None:
    file = logged(tmp_path / "air.csv")
    inferred = infer_file(file, Options(timezone="UTC", at_format="%d.%m.%Y %H.%M.%S"), at="Date+Time")
    assert "3,000 are valid" in inferred.notes[0]
    with pytest.raises(InvalidInput, match="'Clock' is not a column"):
        infer_file(file, at="Date+Clock")


def test_a_column_that_the_user_needs_otherwise_is_no_part_of_the_moment(tmp_path: Path) -> None:
    inferred = infer_file(logged(tmp_path / "air.csv"), Options(timezone="UTC"), kinds=(("Time", "category"),))
    assert "--map at=Date " in inferred.import_command
    assert 'name = "time"' in inferred.text or 'name = "time_2"' in inferred.text


def test_times_that_could_be_numbers_need_their_name(tmp_path: Path) -> None:
    named = infer_file(logged(tmp_path / "air.csv", time="%H.%M"), Options(timezone="UTC"))
    assert "--map at=Date+Time" in named.import_command
    text = (tmp_path / "air.csv").read_text("utf-8-sig").replace("Date;Time", "Date;Dose")
    (tmp_path / "air.csv").write_text(text)
    assert "--map at=Date " in infer_file(tmp_path / "air.csv", Options(timezone="UTC")).import_command


@pytest.mark.parametrize("garbage", ["Date;Time;Wind;T °C;PM2,5", "01.01.2024;00.00.00;N;defekt;12,50"])
def test_a_strange_row_makes_no_column_of_numbers_a_category(tmp_path: Path, garbage: str) -> None:
    file = logged(tmp_path / "air.csv", extra={1500: garbage})
    inferred = infer_file(file, Options(timezone="UTC"))
    assert inferred.summary.startswith("regression of pm2_5 by 2 features")
    assert "3,000 are valid and 1 would be refused" in inferred.notes[0]
    refused = "line 1502: repeats the names of the columns" if garbage.startswith("Date") else "defekt"
    assert refused in inferred.notes[1]
    strange = "1 row holds other text, such as 'defekt', and would be refused: --missing=defekt"
    assert (strange in inferred.text) == ("defekt" in garbage)


def test_few_codes_with_a_rare_letter_stay_a_category(tmp_path: Path) -> None:
    file = tmp_path / "codes.csv"
    rows = (
        f"{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{'X' if k % 500 == 7 else k % 4},{k / 7}" for k in range(2000)
    )
    file.write_text("at,grade,y\n" + "\n".join(rows))
    assert 'name = "grade"  # 0, 1, 2, 3 and 1 other\nkind = "category"' in infer_file(file).text


def test_a_number_that_stands_for_a_missing_value_is_named_with_its_columns(tmp_path: Path) -> None:
    file = logged(tmp_path / "air.csv")
    numbers = count()
    lines = [_blank(line, numbers) for line in file.read_text("utf-8-sig").splitlines()]
    file.write_text("\n".join(lines))
    (note,) = [one for one in infer_file(file, Options(timezone="UTC")).notes if "-200" in one]
    assert note.startswith("Note: PM2,5, T °C are -200 in 61 rows, far from all other values")
    assert note.endswith("run infer again with --force --missing=-200.")
    again = infer_file(file, Options(timezone="UTC", missing=frozenset({"-200"})))
    assert not any("-200 in" in one for one in again.notes)
    assert "2,939 are valid and 61 would be refused" in again.notes[0]
    assert "label: is missing: --unlabelled keeps such events until it comes" in again.notes[1]
    assert "optional = true  # missing in 61 rows" in again.text


def _blank(line: str, numbers: Iterator[int]) -> str:
    """Each fiftieth row with -200, once written with decimals, for its temperature and its label."""
    number = next(numbers)
    if number == 0 or (number % 50 > 0 and number != 7):
        return line
    return ";".join([*line.split(";")[:3], "-200,00" if number == 7 else "-200", "-200"])


def test_far_values_that_are_rare_or_near_are_no_stand_ins(tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    rows = (
        f"{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{9000 if k == 5 else k % 60},{k % 7 - 1}" for k in range(2000)
    )
    file.write_text("at,amount,y\n" + "\n".join(rows))
    assert not any("far from all other values" in one for one in infer_file(file).notes)


def test_codes_of_rows_become_their_ids_though_some_rows_are_there_twice(tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    lines = [
        f"TK-{k:06},{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{k % 60},{('open', 'shut')[k % 2]}"
        for k in range(900)
    ]
    file.write_text("\n".join(["Ticket #,opened,words,outcome", *lines, *lines[:9]]))
    assert infer_file(file).import_command.endswith("--id-from 'Ticket #'")
    changed = [line.replace(",open", ",shut") for line in lines[:9]]
    file.write_text("\n".join(["Ticket #,opened,words,outcome", *lines, *changed]))
    assert "--id-from" not in infer_file(file).import_command


def test_categories_and_classes_in_several_spellings_are_named_in_few_words(tmp_path: Path) -> None:
    file = tmp_path / "tiers.csv"
    tiers = ["Gold", "GOLD", "gold ", " gold", "Silver", "silver", "Bronze", "bronze", "Tin", "tin"]
    rows = [
        f"{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{tiers[k % 10]},{('yes it is', 'no')[k % 2]}"
        for k in range(400)
    ]
    file.write_text("at,Tier,outcome\n" + "\n".join(rows))
    (note,) = [one for one in infer_file(file).notes if "Tier" in one]
    assert "' gold' and 'GOLD' and 'Gold' and 1 more" in note
    assert "'Silver' and 'silver'; and 1 more. If they are one" in note
    assert "write them alike in the file before it is imported" in note


def test_classes_of_which_most_are_numbers_may_be_an_amount(tmp_path: Path) -> None:
    file = tmp_path / "amounts.csv"
    rows = [
        f"{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{k % 9},{f'{k % 90} mg' if k % 20 == 0 else k % 90 / 10}"
        for k in range(2000)
    ]
    file.write_text("at,n,outcome\n" + "\n".join(rows))
    (note,) = [one for one in infer_file(file).notes if "classes are numbers" in one]
    assert note.endswith("if outcome is an amount, run infer again with --force --kind outcome=number.")


@pytest.mark.parametrize(
    "above",
    [
        "Plant: North;Export of 03.01.2025 08:12\r\n\r\n",
        "Export;;;;\r\n",
        "sep=;\r\nPlant: North\r\nZone: local; summer time\r\n\r\n",
    ],
)
def test_lines_above_the_header_are_passed_over(tmp_path: Path, above: str) -> None:
    file = logged(tmp_path / "air.csv")
    file.write_bytes(above.encode() + file.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    inferred = infer_file(file, Options(timezone="UTC"))
    assert inferred.summary.startswith("regression of pm2_5 by 2 features")
    assert f"{NUM_ROWS:,} are valid and 0 would be refused" in inferred.notes[0]


def test_a_first_row_of_figures_is_no_header_below_a_title(tmp_path: Path) -> None:
    file = tmp_path / "bare.csv"
    file.write_text("a\n" + "\n".join(f"2024-01-01T{k:02}:00:00Z,{k},{k / 3},{k % 5}" for k in range(20)))
    with pytest.raises(InvalidInput, match="has no rows below its header"):
        infer_file(file)


def test_numbers_of_rows_with_leading_zeros_become_ids(tmp_path: Path) -> None:
    file = tmp_path / "loans.csv"
    lines = [
        f"{k:07},{BEGIN + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{k % 60},{('open', 'shut')[k % 2]}" for k in range(900)
    ]
    file.write_text("\n".join(["Application No,opened,words,outcome", *lines, *lines[:9]]))
    inferred = infer_file(file)
    assert inferred.import_command.endswith("--id-from 'Application No'")
    assert "Application No: nearly every row has a code of its own" in inferred.text
