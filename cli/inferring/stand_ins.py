"""Numbers that stand for missing values, such as -200 or 9999: repeated, and far from all others of their column."""

from collections.abc import Collection, Iterable

from cli.inferring.kinds import Judged, Reading
from cli.reading.numbers import NumberStyle, read_number
from contracts.shown import say_count
from contracts.spec.spec_values import list_names

_FEWEST_ROWS = 3


def describe_stand_ins(judged: Iterable[Judged], reading: Reading) -> list[str]:
    """Notes on such numbers, each with the columns that hold it and the option that makes it a missing value."""
    found: dict[int, dict[str, int]] = {}
    for one in judged:
        if one.kind in ("integer", "number"):
            for number, count in _find_stand_ins(one, reading.styles.get(one.name, NumberStyle())):
                found.setdefault(number, {})[one.name] = count
    return [_describe(number, columns) for number, columns in found.items()]


def _describe(number: int, columns: dict[str, int]) -> str:
    are = "is" if len(columns) == 1 else "are"
    return (
        f"{list_names([*columns])} {are} {number} in {_say_rows(columns.values())}, far from all other values: if that "
        f"means a missing value, run infer again with --force --missing={number}"
    )


def _say_rows(counts: Collection[int]) -> str:
    most = max(counts)
    return ("up to " if len({*counts}) > 1 else "") + say_count(most, "row")


def _find_stand_ins(one: Judged, style: NumberStyle) -> list[tuple[int, int]]:
    """The least and the greatest number of a column, with their counts, if the others do not spread as far as that."""
    counts: dict[float, int] = {}
    for text, count in one.counts.items():
        if (number := read_number(text, style)) is not None:
            counts[number] = counts.get(number, 0) + count
    found = []
    for number in (min(counts, default=0.0), max(counts, default=0.0)):
        others = [other for other in counts if other != number]
        if len(others) < 2 or counts[number] < _FEWEST_ROWS or not float(number).is_integer():
            continue
        least, greatest = min(others), max(others)
        if min(abs(number - least), abs(number - greatest)) > greatest - least:
            found.append((int(number), counts[number]))
    return found
