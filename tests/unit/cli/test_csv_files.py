"""CSV as people have it: its encoding, separator and quotes are found, and a broken line harms no other."""

import io
import json
from typing import Any

import pytest

from cli.file_rows.rows import Row, read_csv
from cli.reading.options import Options
from contracts.errors import InvalidInput
from contracts.task import Task
from tests.unit.cli.test_import_rows import CLASSIFICATION, HEADER, REGRESSION

GOOD = "a,2026-01-01T00:00:00Z,late,1,UA\n"


def rows_of(content: str | bytes, **options: Any) -> list[Row]:
    data = content if isinstance(content, bytes) else content.encode()
    return list(read_csv(io.BytesIO(data), CLASSIFICATION, Options(**options)))


def read(text: str, task: Task = CLASSIFICATION) -> list[dict[str, Any]]:
    """The events of a text."""
    return [json.loads(row.line) for row in read_csv(io.BytesIO(text.encode()), task)]


def carriers(content: str | bytes, **options: Any) -> list[str]:
    return [json.loads(row.line)["features"]["carrier"] for row in rows_of(content, **options)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "utf-32"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encoding_and_separator_are_found(encoding: str, separator: str) -> None:
    text = (HEADER + GOOD * 3).replace("UA", "Zürich–é").replace(",", separator)
    assert carriers(text.encode(encoding)) == ["Zürich–é"] * 3


def test_an_encoding_that_is_given_is_used() -> None:
    assert carriers((HEADER + GOOD.replace("UA", "Łódź")).encode("iso8859-2"), encoding="iso8859-2") == ["Łódź"]
    with pytest.raises(InvalidInput, match="--encoding: 'klingon' is unknown"):
        rows_of(HEADER, encoding="klingon")


def test_single_quotes_and_the_separator_line_of_excel_are_found() -> None:
    assert carriers("'event_id','at','label','distance','carrier'\n'a','T','late','1','UA, Inc'\n") == ["UA, Inc"]
    assert carriers("sep=;\n" + (HEADER + GOOD).replace(",", ";")) == ["UA"]


def test_spaces_behind_separators_are_no_part_of_values() -> None:
    assert carriers((HEADER + GOOD).replace(",", ", ")) == ["UA"]


def test_a_line_in_another_encoding_is_refused_alone() -> None:
    content = (HEADER + GOOD.replace("UA", "Zürich") * 3).encode() + GOOD.replace("UA", "Zürich").encode("latin-1")
    *good, bad = rows_of(content)
    assert [row.is_sent for row in good] == [True] * 3
    assert not bad.is_sent
    assert "line 5" in str(bad.faults)
    assert "bytes that are not UTF-8" in str(bad.faults)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a,T,late,1\n", "has 4 cells, and the header has 5 columns"),
        ("a,T,late,1,UA,more\n", "has 6 cells"),
        ('a,T,"late,1,UA\n', "not closed"),
        ('a,T,"late" x,1,UA\n', "wrong place"),
        ("a," + "x" * 2_000_000 + ",late,1,UA\n", "longer than"),
        ("\x00\x00\x00,\x00\n", "has 2 cells"),
    ],
)
def test_a_broken_line_is_refused_alone(line: str, reason: str) -> None:
    first, broken, last = rows_of(HEADER + GOOD + line + GOOD)
    assert (first.line, first.is_sent, first.faults) == (last.line, True, ())
    assert not broken.is_sent
    assert reason in str(broken.faults)


def test_a_quotation_mark_that_is_never_closed_loses_one_line() -> None:
    rows = rows_of(HEADER + GOOD * 2 + 'a,T,"late,1,UA\n' + GOOD * 3000)
    assert len(rows) == 3003
    assert [row.is_sent for row in rows].count(False) == 1


def test_a_cell_may_hold_line_ends_and_quotation_marks() -> None:
    assert carriers(HEADER + 'a,T,late,1,"UA\n""Inc""\r\n, new"\n' + GOOD) == ['UA\n"Inc"\r\n, new', "UA"]


@pytest.mark.parametrize("blank", ["\n", "   \n", ",,,,\n", " , ,, ,\n", "\t\n", "\x1a", "\x1a\n", "\r\n"])
def test_blank_lines_are_passed_over(blank: str) -> None:
    assert carriers(HEADER + GOOD + blank + GOOD + blank) == ["UA", "UA"]


def test_a_last_control_z_is_no_part_of_a_value() -> None:
    assert carriers(HEADER + GOOD.strip() + "\x1a") == ["UA"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_is_read(end: str) -> None:
    assert carriers((HEADER + GOOD * 2).replace("\n", end)) == ["UA", "UA"]


def test_a_column_named_twice_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInput, match="distance: names columns 4 and 6"):
        read(HEADER.strip() + ",distance\na,T,late,1,UA,2\n")


def test_a_column_without_a_name_is_passed_over_and_empty_cells_at_the_end_do_not_count() -> None:
    for text in (
        f",{HEADER}0,{GOOD}1,{GOOD}",
        (HEADER + GOOD * 2).replace("\n", ",\n"),
        HEADER + GOOD + GOOD.strip() + ",,\n",
    ):
        assert [set(event["features"]) for event in read(text)] == [{"distance", "carrier"}] * 2


def test_an_empty_file_says_so() -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        read("")


def test_numbers_of_a_column_are_read_in_its_style() -> None:
    text = HEADER.replace(",", ";") + "a;T;late;1.234,5 €;UA\nb;T;late;1.000;UA\nc;T;late;;UA\n"
    assert [event["features"]["distance"] for event in read(text)] == [1234.5, 1000, None]


def test_more_cells_may_mean_a_missing_value() -> None:
    text = HEADER + "a,T,late,NA,-\nb,T,NA,1,UA\n"
    rows = [json.loads(row.line) for row in rows_of(text, missing=frozenset({"NA", "-"}))]
    assert rows[0]["features"] == {"distance": None, "carrier": None}
    assert rows[1]["label"] is None


def test_a_moment_that_cannot_be_read_is_sent_as_it_is_with_our_reason() -> None:
    (row,) = rows_of(HEADER + "a,01/02/2026,late,1,UA\n")
    assert json.loads(row.line)["at"] == "01/02/2026"
    assert row.is_sent
    assert "--dayfirst" in row.faults[0].reason


def test_a_date_and_an_hour_in_two_columns_are_one_moment() -> None:
    text = "event_id,day,hr,label,distance,carrier\na,2011-01-01,5,late,1,UA\n"
    (row,) = rows_of(text, columns=(("at", "day+hr"),), timezone="UTC")
    assert json.loads(row.line)["at"] == "2011-01-01T05:00:00Z"


def test_columns_are_found_by_names_that_differ_in_spelling_only() -> None:
    (event,) = read("Event ID,At,Arrival,Distance ,CARRIER,Remark\na,T,late,1,UA,x\n")
    assert event == {"event_id": "a", "at": "T", "label": "late", "features": {"distance": 1, "carrier": "UA"}}


def test_two_columns_for_one_value_are_refused_with_both() -> None:
    with pytest.raises(InvalidInput, match=r"carrier: could be 'Carrier' and 'CARRIER': choose one with --map"):
        read("event_id,at,label,distance,Carrier,CARRIER\na,T,late,1,UA,AA\n")


def test_a_mapping_names_a_column_once_and_a_value_once() -> None:
    text = "event_id,when,label,distance,line\na,T,late,1,UA\n"
    (row,) = rows_of(text, columns=(("at", "when"), ("carrier", "line")))
    assert json.loads(row.line)["features"]["carrier"] == "UA"
    with pytest.raises(InvalidInput, match="--map: carrier is given twice"):
        rows_of(text, columns=(("at", "when"), ("carrier", "line"), ("carrier", "when")))
    with pytest.raises(InvalidInput, match="--map: 'nobody' is not a column of the file"):
        rows_of(text, columns=(("at", "when"), ("carrier", "nobody")))
    with pytest.raises(InvalidInput) as misspelled:
        rows_of(text, columns=(("at", "whem"), ("carrier", "line")))
    assert [fault.field for fault in misspelled.value.faults] == ["--map"]  # and not once more as a missing `at`
    assert str(misspelled.value).endswith(
        "'whem' is not a column of the file (its columns: event_id, when, label, distance, line): write 'when'"
    )
    with pytest.raises(InvalidInput, match="--map: colour is no value of an event"):
        rows_of(text, columns=(("colour", "line"),))
    with pytest.raises(InvalidInput, match=r"label: names a column, and so does --map label=line.*--drop label"):
        rows_of(text, columns=(("at", "when"), ("label", "line")))
    (row,) = rows_of(text, columns=(("at", "when"), ("label", "line"), ("carrier", "label")))
    assert json.loads(row.line)["label"] == "UA"


def test_ids_are_made_of_columns() -> None:
    text = "day,at,label,distance,carrier\nmon,T,late,1,UA\n,T,late,1,UA\n"
    good, bad = rows_of(text, id_from=("day", "carrier"))
    assert json.loads(good.line)["event_id"] == "mon:UA"
    assert "one is empty" in bad.faults[0].reason


def test_without_a_column_of_ids_they_are_digests_and_equal_rows_are_numbered() -> None:
    text = "at,label,distance,carrier\nT,late,1,UA\nT,late,2,UA\nT,late,1,UA\n"
    first, other, equal = (json.loads(row.line)["event_id"] for row in rows_of(text))
    assert first != other
    assert equal == f"{first}-2"
    assert [json.loads(row.line)["event_id"] for row in rows_of(text)] == [first, other, equal]
    moved = "carrier,at,distance,label\nUA,T,1,late\n"
    assert json.loads(rows_of(moved)[0].line)["event_id"] == first


def test_booleans_have_one_spelling_and_a_listed_class_keeps_its_own() -> None:
    text = HEADER + "a,T,True,1,FALSE\nb,T,true,1,yes\n"
    first, second = read(text)
    assert (first["label"], first["features"]) == ("true", {"distance": 1, "carrier": "false"})
    assert (second["label"], second["features"]) == ("true", {"distance": 1, "carrier": "yes"})
    listed = CLASSIFICATION.model_copy(
        update={"target": CLASSIFICATION.target.model_copy(update={"classes": ("True", "False")})}
    )
    assert read(text, listed)[0]["label"] == "True"


def test_a_label_of_a_regression_may_have_a_decimal_comma() -> None:
    (event,) = read(HEADER.replace(",", ";") + "a;T;1,5;2;UA\n", REGRESSION)
    assert event["label"] == 1.5


def test_json_under_a_name_of_csv_is_called_json() -> None:
    for text in ('[{"event_id": "a", "x": 1}]', '{"event_id": "a", "x": 1}\n', '[{"event_id": 1}, {"event_id": 2}]'):
        with pytest.raises(InvalidInput, match=r"is JSON, not CSV: .*--format ndjson"):
            rows_of(text)


@pytest.mark.parametrize("content", [(HEADER + GOOD).replace(",", "^"), f"Delays in 2026\n\n{HEADER}{GOOD}"])
def test_a_header_of_one_column_leads_to_the_separator_and_the_lines_above(content: str) -> None:
    with pytest.raises(InvalidInput, match="--separator, and delete lines above the header"):
        rows_of(content)


def test_a_mistyped_value_of_map_is_told_the_near_one() -> None:
    options = Options(columns=(("Distanz", "km"),))
    with pytest.raises(InvalidInput, match=r"--map: Distanz is no value of an event of .*: write distance=km"):
        list(read_csv(io.BytesIO(HEADER.encode()), CLASSIFICATION, options))
