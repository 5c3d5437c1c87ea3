"""Refused rows: each is told by its line and id and with its remedy, in a file that is never its own source."""

from pathlib import Path
from typing import Any

import pytest

from cli.file_rows.reasons import Reason, say_place
from cli.file_rows.rejects import name_rejects
from cli.importing.importer import Imported
from cli.importing.outcome import print_imported


@pytest.mark.parametrize(
    ("event_id", "place", "said"),
    [
        ("E17", "line 3", "E17: is empty (line 3)"),
        ("row-2e19ea9d59714aedf54ab048", "line 3", "line 3: is empty"),
        ("row-2e19ea9d59714aedf54ab048-2", "row 9", "row 9: is empty"),
        ("(no event_id)", "line 3", "line 3: is empty"),
        ("(no event_id)", None, "(no event_id): is empty"),
        ("row-7", "line 3", "row-7: is empty (line 3)"),
    ],
)
def test_a_row_is_named_by_its_id_and_its_line_but_a_digest_of_it_by_the_line(
    event_id: str, place: str | None, said: str
) -> None:
    assert say_place(event_id, "is empty", place) == said


@pytest.mark.parametrize(
    ("file", "rejects"),
    [
        ("demand.csv", "demand.rejected.csv"),
        ("demand.rejected.csv", "demand.rejected-2.csv"),
        ("demand.rejected-2.csv", "demand.rejected-3.csv"),
        ("demand.rejected.csv.gz", "demand.rejected-2.csv"),
        ("rejected.csv", "rejected.rejected.csv"),
    ],
)
def test_rows_that_are_refused_once_more_go_to_a_numbered_file(file: str, rejects: str) -> None:
    assert name_rejects(Path(file), Path(), is_csv=True) == Path(rejects)


@pytest.mark.parametrize(
    ("reason", "value", "names_option"),
    [
        ("'01/02/2026' may name the day or the month first: say --dayfirst or --monthfirst", None, True),
        ("has no offset: an offset such as Z or +02:00 is required, or --timezone Europe/Berlin", None, True),
        ("is a string, not a number", "'NA'", True),
        ("is a string, not a number", "'abc'", False),
        ("is required", None, False),
    ],
)
def test_a_reason_that_an_option_settles_is_known(reason: str, value: str | None, names_option: bool) -> None:
    assert Reason("at", reason, 1, "a", value).names_option == names_option


def test_a_missing_value_in_a_file_is_told_the_option_alone() -> None:
    reason = "is a string, not a number: send null for a missing value, or leave it out; the feature needs optional"
    said = Reason("features.age", reason, 2, "a", "'n/a'", "line 2").describe()
    assert said == (
        "2 rows, such as a: features.age: is a string, not a number (it holds 'n/a'); "
        "if that means a missing value: --missing n/a (line 2)"
    )


def test_an_empty_value_is_not_quoted() -> None:
    assert Reason("label", "is empty", 1, "a", "''").describe() == "1 row: a: label: is empty"


def an_import(*reasons: Reason, has_row_ids: bool = True, created: int = 5, duplicates: int = 0) -> Imported:
    counts = {"created": created, "duplicates": duplicates, "conflicts": 0, "rejected": len(reasons)}
    rejects = Path("demand.rejected.csv") if reasons else None
    return Imported(9, 0, counts, 1.0, rejects, reasons, (), (), 1, 7, has_row_ids)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ({}, "retract this import, whose rows may get other ids (morrow events retract demand --import 7), and import"),
        ({"created": 0, "duplicates": 5}, "retract what is stored (morrow events history demand), as ids may change,"),
        ({"created": 0}, "with the reasons: import the file again with the option that a reason names."),
        ({"has_row_ids": False}, "with the option that a reason names (stored rows count as duplicates)."),
    ],
)
def test_rows_whose_ids_are_digests_are_retracted_before_they_are_read_otherwise(
    found: dict[str, Any], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_imported("demand", an_import(Reason("features.age", "is a string", 1, "a", "'n/a'"), **found), dry_run=False)
    assert remedy in capsys.readouterr().out


def test_a_corrected_file_without_ids_is_said_to_add_to_the_wrong_rows(capsys: pytest.CaptureFixture[str]) -> None:
    corrected = "a corrected row is stored next to the wrong one"
    print_imported("demand", an_import(created=3, duplicates=6), dry_run=False)
    said = capsys.readouterr().out
    assert corrected in said
    assert "retract both, and import it again: morrow events history demand" in said
    assert "1 row equals an earlier one of the file" in said
    for plain in (an_import(created=9), an_import(created=3, duplicates=6, has_row_ids=False)):
        print_imported("demand", plain, dry_run=False)
        assert corrected not in capsys.readouterr().out
