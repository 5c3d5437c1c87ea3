"""Refused rows: each is told by its line and id and with its remedy, in a file that is never its own source."""

from pathlib import Path

import pytest

from cli.file_rows.reasons import Reason, say_place
from cli.importing.rejects import name_rejects


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
