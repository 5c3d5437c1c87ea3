"""The options of an import: kept with it, and spelled in the commands that read the next file."""

import shlex

import pytest

from service.advice.import_options import ImportOptions, can_be_kept, spell_import, spell_predict
from service.advice.last_import import LastImport, spell_commands

LOAD = ImportOptions(
    columns={"at": "Zeit punkt", "label": "Last_MW"}, timezone="Europe/Berlin", missing=("-", "NA"), day_first=True
)


def test_a_command_repeats_every_option_as_a_shell_reads_it() -> None:
    spelled = spell_import("load", LOAD)
    assert spelled == (
        "morrow events import load FILE --map 'at=Zeit punkt' --map label=Last_MW --timezone Europe/Berlin --dayfirst "
        "--missing=-,NA"
    )
    assert "at=Zeit punkt" in shlex.split(spelled)


def test_a_file_of_questions_needs_no_label_and_no_ids() -> None:
    options = ImportOptions(columns={"at": "t", "label": "y", "event_id": "nr", "wind": "Wind"}, id_from=("a", "b"))
    assert spell_predict("load", options) == "morrow predict load FILE --out ANSWERS.csv --map at=t --map wind=Wind"


def test_a_path_that_looks_like_an_option_is_none() -> None:
    assert spell_import("load", ImportOptions(), "-x.csv") == "morrow events import load ./-x.csv"
    assert spell_import("load", ImportOptions(), "-") == "morrow events import load -"


@pytest.mark.parametrize(
    ("options", "is_kept"),
    [
        (LOAD, True),
        (ImportOptions(), True),
        (ImportOptions(columns={"at": "x" * 257}), False),
        (ImportOptions(dropped=("a\nb",)), False),
        (ImportOptions(encoding=""), False),
    ],
)
def test_only_options_that_a_record_can_hold_are_sent(options: ImportOptions, is_kept: bool) -> None:
    assert can_be_kept(options) is is_kept


@pytest.mark.parametrize(
    ("last", "remark"),
    [
        (None, "use the options of the last one"),
        (LastImport(None), "use the options of the last one"),
        (LastImport(LOAD), ""),
        (LastImport(LOAD, is_retracted=True), "Check the options"),
        (LastImport(ImportOptions(), is_retracted=True), ""),
    ],
)
def test_what_is_not_known_of_the_options_is_said(last: LastImport | None, remark: str) -> None:
    found = spell_commands("load", last).remark
    assert remark in found if remark else found == ""
