"""Which kind of value a column holds, and why: a guess, of which the task file says the reason."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cli.inferring.moment_texts import are_times_of_day, looks_like_a_moment
from cli.inferring.profile import Column
from cli.reading.moments import MomentReader, find_order, has_dots, spell_form
from cli.reading.numbers import NumberStyle, find_style, numbers_of, read_number, settle_styles
from cli.reading.options import Options
from contracts.errors import InvalidInput
from contracts.missing import INSTEAD_OF_NUMBERS, MISSING
from contracts.shown import say_count
from contracts.spec.spec_values import MAX_TEXT, suggest_name
from contracts.task import Kind
from contracts.truth import TRUTHS

_MAX_CATEGORIES = 1000
_FEW_CODES = 50
# Share of the rows of a number column that may hold other texts.
_MOST_STRANGE = 0.01
_ID = re.compile(r"(^|_)(id|nr|no|number|key|uuid)$")
_CODES = re.compile(
    r"(^|_)(code|type|class|kind|category|zone|region|season|weather\w*|weekday|wochentag|wday|dow|plan|segment|group|"
    r"status|zip|plz)($|_)"
)
_HOUR = re.compile(r"(^|_)(hour|hr|stunde)($|_)")
_WORDS = {frozenset({"true", "false"}), frozenset({"yes", "no"}), frozenset({"t", "f"}), frozenset({"y", "n"})}
_TIME_NAME = re.compile(
    r"(^|_)(at|ts|time|times|timestamp\w*|datetime\w*|date|datum|zeit|when|created|epoch|unix\w*)($|_)|timestamp$|time$"
)
# Seconds since 1970, also with decimals, and the smaller units.
_EPOCH = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.\d+)?", re.ASCII)

Found = Literal["moment", "none"] | Kind


@dataclass(frozen=True)
class Judged:
    """A column with the kind of its values; `none` is left out, for the reason `why`."""

    column: Column
    kind: Found
    why: str
    num_missing: int
    counts: Counter[str]

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def key(self) -> str:
        """The name for a feature."""
        return suggest_name(suggest_name(self.column.name).lower())

    @property
    def examples(self) -> str:
        """The most frequent values, for people."""
        texts = [text if len(text) <= 24 else f"{text[:24]}…" for text, _ in self.counts.most_common(4)]
        more = len(self.counts) - len(texts)
        mark = "; " if any("," in text for text in texts) else ", "
        return mark.join(texts) + (f" and {more:,} {'other' if more == 1 else 'others'}" if more > 0 else "")


@dataclass(frozen=True)
class Reading:
    """How to read the file, completed by guesses, with the style of each column of numbers."""

    options: Options
    styles: dict[str, NumberStyle]
    guesses: tuple[str, ...]


def find_missing(columns: Iterable[Column], options: Options) -> frozenset[str]:
    """The texts that mean a missing value: in columns whose other values are numbers or moments, or by themselves."""
    found: set[str] = set(options.missing)
    for column in columns:
        present = {text for text in column.counts if text.lower() in INSTEAD_OF_NUMBERS}
        rest = [text for text in column.counts if text not in present and text]
        if not present or not rest:
            continue
        style = find_style(rest, options.decimal)
        is_typed = all(read_number(text, style) is not None for text in rest) or all(
            map(looks_like_a_moment, rest[:1000])
        )
        found |= {text for text in present if is_typed or text.lower() in MISSING}
    return frozenset(found)


def complete(columns: Sequence[Column], options: Options, *, is_european: bool) -> Reading:
    """The options with what the columns show: missing values, the form of dates, decimal marks."""
    missing = find_missing(columns, options)
    options = replace(options, missing=missing)
    guesses: list[str] = []
    texts = {column.name: [text for text in column.counts if text and text not in missing] for column in columns}
    styles = settle_styles({name: find_style(found, options.decimal) for name, found in texts.items()})
    dates = [text for found in texts.values() if _are_dates(found) for text in found]
    by_form = options.at_format is not None
    if options.day_first is None and not by_form and (day_first := _find_order(dates, styles, is_european)) is not None:
        options = replace(options, day_first=day_first)
        order = f"put the {'day' if day_first else 'month'} first"
        guesses.append(
            f"dates {order}"
            if find_order(dates) is not None
            else f"dates are taken to {order}, as in files with decimal commas or semicolons, for no date shows it: "
            f"if that is wrong, add {'--monthfirst' if day_first else '--dayfirst'}"
        )
    # As everywhere, dots mean that the day is first. Otherwise the dates must show it, or an option say it.
    ordered = (text for text in dates if options.day_first is not None or has_dots(text))
    forms = (spell_form(text, options.day_first) for text in ordered)
    if not by_form and (form := next(filter(None, forms), None)) is not None:
        options = replace(options, at_format=form)
        guesses.append(f"dates are taken to have the form {form}: if that is wrong, give theirs by --at-format")
    return Reading(options, styles, tuple(guesses))


def _are_dates(texts: Sequence[str]) -> bool:
    """Whether texts are dates, by the first of them; 23.00.00 is a time of day."""
    return bool(texts) and all(map(looks_like_a_moment, texts[:100])) and not are_times_of_day(texts)


def _find_order(dates: Sequence[str], styles: dict[str, NumberStyle], is_european: bool) -> bool | None:
    """The order of day and month, by the dates or, if they do not show it, by how the file is written."""
    if (order := find_order(dates)) is not None:
        return order
    if not any(re.match(r"\d{1,2}[/-]\d{1,2}[/-]\d", text) for text in dates):
        return None
    return True if is_european or any(style.decimal == "comma" for style in styles.values()) else None


def judge(column: Column, reading: Reading, num_rows: int) -> Judged:  # noqa: PLR0911 one for each reason
    """The kind of a column."""
    style = reading.styles.get(column.name, NumberStyle())
    missing = frozenset({"", *reading.options.missing})
    if stand_ins := numbers_of(missing):
        missing |= {text for text in column.counts if read_number(text, style) in stand_ins}
    num_missing = column.num_of(missing)
    counts = Counter({text: count for text, count in column.counts.items() if text not in missing})

    def found(kind: Found, why: str) -> Judged:
        return Judged(column, kind, why, num_missing, counts)

    if column.refusal is not None:
        return found("none", column.refusal)
    if not counts:
        return found("none", "empty in every row")
    if column.is_row_number or column.name.startswith("Unnamed: "):
        return found("none", "numbers the rows")
    if _are_moments(counts, reading.options, is_named=_TIME_NAME.search(suggest_name(column.name).lower()) is not None):
        return found("moment", "moments")
    if len(counts) == 1:
        return (
            found("none", f"the same in every row: {next(iter(counts))[:40]}")
            if not num_missing
            else found("category", "one value, or missing")
        )
    strange = Counter({text: count for text, count in counts.items() if read_number(text, style) is None})
    if not strange:
        return _judge_numbers(column, style, found, counts, num_rows)
    numbers = counts - strange
    if len(numbers) > _FEW_CODES and strange.total() <= _MOST_STRANGE * counts.total():
        judged = _judge_numbers(column, style, found, numbers, num_rows)
        return replace(judged, counts=numbers, why=f"{judged.why}; {_describe_strange(strange)}")
    if frozenset(text.lower() for text in counts) in _WORDS and all(text in TRUTHS for text in counts):
        return found("boolean", "two words for true and false")
    if any(len(text) > MAX_TEXT for text in counts):
        return found("none", f"texts longer than {MAX_TEXT} characters")
    if len(counts) > max(_FEW_CODES, (num_rows - num_missing) // 2):
        return found("none", "nearly every row has a text of its own, as in ids, names and remarks")
    if len(counts) > _MAX_CATEGORIES:
        return found("category", f"texts, but {len(counts):,} different ones: a coarser column may do better")
    return found("category", "texts")


def _describe_strange(strange: Counter[str]) -> str:
    """What to say about the few texts in a column of numbers."""
    ((text, _),) = strange.most_common(1)
    hold = "1 row holds" if strange.total() == 1 else f"{strange.total():,} rows hold"
    option = shlex.join([f"--missing={text}"])
    return f"{hold} other text, such as {text[:40]!r}, and would be refused: {option} if it means a missing value"


def _judge_numbers(  # noqa: PLR0911 one for each reason
    column: Column, style: NumberStyle, found: Callable[[Found, str], Judged], counts: Counter[str], num_rows: int
) -> Judged:
    key = suggest_name(column.name).lower()
    read = [style.read(text) for text in counts]
    is_whole = all(isinstance(number, int) for number in read)
    if is_whole and len(counts) == num_rows > _FEW_CODES and _ID.search(key):
        return found("none", "an id of the row")
    if any(re.match(r"0\d", text) for text in counts):
        if len(counts) > max(_FEW_CODES, num_rows // 2):
            return found("none", "nearly every row has a code of its own")
        return found("category", "digits that begin with 0, as in codes")
    if is_whole and len(counts) > max(_FEW_CODES, num_rows // 10) and _ID.search(key):
        return found(
            "none", "numbers that look like ids, by their name; --kind COLUMN=category takes them all the same"
        )
    if is_whole and 2 < len(counts) <= _FEW_CODES and _CODES.search(key):
        return found("category", 'whole numbers that look like codes; if they are amounts, write kind = "integer"')
    if is_whole and len(counts) > 12 and _HOUR.search(key) and all(number in range(25) for number in read):
        return found(
            "category", 'hours of the day, each with an effect of its own; for a number, write kind = "integer"'
        )
    if is_whole and set(read) == {0, 1}:
        return found("integer", "0 and 1; boolean would do as well")
    if is_whole:
        few = f"; only {say_count(len(counts), 'value')}: category, if they are codes" if len(counts) <= 12 else ""
        return found("integer", f"whole numbers{few}")
    sign = f"; {style.sign} is ignored" if style.sign else ""
    comma = " with decimal commas" if style.decimal == "comma" and style.shows_mark else ""
    return found("number", f"numbers{comma}{sign}")


def _are_moments(counts: Counter[str], options: Options, *, is_named: bool) -> bool:
    """Whether every text is a moment.

    Numbers count only if they have the digits of seconds or milliseconds since 1970. Those of smaller units, and
    decimal seconds, count if the column is named like a time, because ids and amounts can look the same.
    """
    read = MomentReader(options.timezone or "UTC", options.day_first, options.at_format)
    texts = list(counts)
    sample = texts[:1000]
    if is_named and sum(_EPOCH.fullmatch(text) is None for text in sample) <= len(sample) // 100:
        return True
    if any(re.fullmatch(r"\d{1,9}|\d+\.\d+|\d{11,12}|\d{14,}", text) for text in sample):
        return False
    num_bad = 0
    for text in sample:
        try:
            read(text)
        except (ValueError, InvalidInput):
            num_bad += 1
    return num_bad <= len(sample) // 100
