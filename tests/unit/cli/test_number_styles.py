"""Numbers as spreadsheets write them, and the style that a column shows."""

import pytest

from cli.reading.numbers import NumberStyle, find_style, settle_styles

POINT, COMMA = NumberStyle("point"), NumberStyle("comma")


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,234.50", 1234.5),
        ("1,234,567", 1234567),
        ("$1,234", 1234),
        ("US$ 5", 5),
        ("-€5.50", -5.5),
        ("(12.5)", -12.5),
        ("12 %", 12),
        ("1 234.5", 1234.5),
        ("1'234.5", 1234.5),
        ("\u22125", -5),
        ("+7", 7),
        ("1e3", 1000.0),
    ],
)
def test_a_number_with_decimal_points_is_read(cell: str, number: float) -> None:
    assert POINT.read(cell) == number


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,5", 1.5),
        ("1.234,5", 1234.5),
        ("1.234", 1234),
        ("12,50 €", 12.5),
        ("1 234,5", 1234.5),
        ("7", 7),
        ("-0,5", -0.5),
    ],
)
def test_a_number_with_decimal_commas_is_read(cell: str, number: float) -> None:
    assert COMMA.read(cell) == number


@pytest.mark.parametrize("cell", ["twelve", "nan", "1_000", "12:30", "-", "1.2.3", "1,2,3", ""])
def test_what_is_no_number_stays_text(cell: str) -> None:
    assert NumberStyle().read(cell) == cell


def test_a_number_with_two_meanings_is_refused_with_both() -> None:
    with pytest.raises(ValueError, match=r"'1,234' may be 1234 or 1\.234: say --decimal"):
        NumberStyle().read("1,234")


def test_a_number_of_another_style_than_its_column_is_refused() -> None:
    with pytest.raises(ValueError, match="decimal comma"):
        NumberStyle().read("1,5")
    with pytest.raises(ValueError, match="decimal comma of its column"):
        COMMA.read("0.5")
    with pytest.raises(ValueError, match=r"in \$, and the column's first rows are in €"):
        NumberStyle("point", "€").read("$5.00")


def test_a_column_shows_its_decimal_mark_and_its_sign() -> None:
    assert find_style(["1", "2,5", "1.234,5"], None) == COMMA
    assert find_style(["1", "2.5", "1,234"], None) == POINT
    assert find_style(["1", "1,234", "1.234"], None) == NumberStyle()
    assert find_style(["1,5", "1.5"], None).is_mixed
    assert find_style(["5 €", "7,5 €"], None) == NumberStyle("comma", "€")
    assert find_style(["1,234"], "comma") == COMMA


def test_a_column_that_shows_no_mark_takes_that_of_the_file() -> None:
    styles = settle_styles({"price": COMMA, "number": NumberStyle()})
    assert styles["number"].read("1.234") == 1234
    assert settle_styles({"a": COMMA, "b": POINT, "c": NumberStyle()})["c"].read("1.234") == 1.234
