"""Numbers as people and spreadsheets write them: decimal commas, thousands, currency signs, percent.

A column has one style, found in its first rows. A number that could mean two things is refused, with both of them.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cli.reading.options import Decimal

JSON_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
_LONGEST_INTEGER = 300  # no float64 holds a longer one
_BLANKS = " \t\u00a0\u2007\u2009\u202f"
_CURRENCY = re.compile(
    r"US\$|R\$|[€$£¥₹₽₩₺₴₦₫₿]|(?<![A-Za-z])(?:EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|kr|zł|Kč|Ft)"
    r"\.?(?![A-Za-z])"
)
# Thousands of three digits each, and what may stand between them in any style.
_SPACED = r"[ \u00a0\u2009\u202f'’]"
_STYLES: dict[Decimal, tuple[str, str]] = {"point": (",", "."), "comma": (".", ",")}
_GROUPED = {
    style: re.compile(
        rf"[-+]?(\d{{1,3}}({re.escape(group)}\d{{3}})+|\d{{1,3}}({_SPACED}\d{{3}})+|\d+)"
        rf"({re.escape(mark)}\d*)?([eE][-+]?\d+)?|[-+]?{re.escape(mark)}\d+",
        re.ASCII,
    )
    for style, (group, mark) in _STYLES.items()
}
# One mark and three digits behind one to three others: thousands or decimals.
_EITHER = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_MARKED = re.compile(r"[.,]")


@dataclass(frozen=True)
class NumberStyle:
    """How a column writes numbers: its decimal mark, None if no cell shows it, and its currency or percent sign.

    `shows_mark` is whether a cell of the column has that mark: otherwise the mark is that of the file's other columns.
    """

    decimal: Decimal | None = None
    sign: str = ""
    is_mixed: bool = False
    shows_mark: bool = field(default=False, compare=False)

    def read(self, cell: str) -> int | float | str:
        """The number, or the unchanged cell if it is none. Raises ValueError if it can be read in two ways."""
        if (JSON_NUMBER if self.decimal != "comma" else _INTEGER).fullmatch(cell):
            return _to_json(cell)
        core, sign = strip_signs(cell)
        if sign and self.sign and sign != self.sign:
            raise ValueError(f"{cell!r} is in {sign}, and the column's first rows are in {self.sign}")
        if not core or core[-1] not in "0123456789.,":
            return cell
        decimal = self.decimal
        if decimal is None:
            if JSON_NUMBER.fullmatch(core):
                return _to_json(core)
            decimal = decimal_of(core)
            if _EITHER.fullmatch(core):
                raise ValueError(f"{cell!r} may be {core.replace(',', '')} or {core.replace(',', '.')}: {_REMEDY}")
            if decimal == "comma" or self.is_mixed:
                raise ValueError(f"{cell!r} has a decimal comma, and its column's first rows do not: {_REMEDY}")
            decimal = decimal or "point"
        group, mark = _STYLES[decimal]
        if not _GROUPED[decimal].fullmatch(core):
            if decimal_of(core) is not None:
                raise ValueError(f"{cell!r} does not have the decimal {decimal} of its column: {_REMEDY}")
            return cell
        plain = re.sub(_SPACED, "", core.replace(group, "")).replace(mark, ".")
        found = _to_json(plain)
        return cell if isinstance(found, str) else found


_REMEDY = "say --decimal point or --decimal comma"


def read_number(cell: str, style: NumberStyle) -> float | None:
    """The number of a cell; None if it is none, or can be read in two ways."""
    try:
        found = style.read(cell)
    except ValueError:
        return None
    return None if isinstance(found, str) else float(found)


def numbers_of(missing: Iterable[str]) -> frozenset[float]:
    """The numbers among the cells that mean a missing value: in a column of numbers they may be spelled otherwise."""
    return frozenset(float(cell) for cell in missing if JSON_NUMBER.fullmatch(cell))


def find_style(cells: Iterable[str], given: Decimal | None) -> NumberStyle:
    """The style of a column by some of its cells."""
    seen: set[Decimal] = set()
    signs: list[str] = []
    for cell in cells:
        if _INTEGER.fullmatch(cell):
            continue
        core, sign = strip_signs(cell)
        if sign and sign not in signs:
            signs.append(sign)
        if (decimal := decimal_of(core)) is not None:
            seen.add(decimal)
    sign = signs[0] if signs else ""
    if given is not None:
        return NumberStyle(given, sign, shows_mark=given in seen)
    decimal = next(iter(seen)) if len(seen) == 1 else None
    return NumberStyle(decimal, sign, is_mixed=len(seen) > 1, shows_mark=decimal is not None)


def settle_styles(styles: dict[str, NumberStyle]) -> dict[str, NumberStyle]:
    """The columns whose own cells do not show a decimal mark take that of the file, if its columns agree on commas."""
    known = {style.decimal for style in styles.values() if style.decimal is not None}
    if known != {"comma"}:
        return styles
    return {
        name: replace(style, decimal="comma") if style.decimal is None and not style.is_mixed else style
        for name, style in styles.items()
    }


def decimal_of(core: str) -> Decimal | None:
    """The decimal mark that a number shows beyond doubt; None if it shows none."""
    marks = _MARKED.findall(core)
    if not marks or _EITHER.fullmatch(core):
        return None
    fits = [style for style in _STYLES if _GROUPED[style].fullmatch(core)]
    return fits[0] if len(fits) == 1 else None


def strip_signs(cell: str) -> tuple[str, str]:
    """A number without blanks, currency and percent, and that sign; accounting's parentheses become a minus."""
    core = cell.strip(_BLANKS).replace("\u2212", "-")
    sign = ""
    if core and not (core[0].isdigit() and core[-1].isdigit()):
        if core[0] == "(" and core[-1] == ")":
            core = "-" + core[1:-1]
        if core.endswith("%"):
            core, sign = core[:-1], "%"
        elif (found := _CURRENCY.search(core)) is not None:
            core, sign = core[: found.start()] + core[found.end() :], found[0].rstrip(".")
        core = core.strip(_BLANKS)
        if core[:1] in ("-", "+"):
            core = core[0] + core[1:].lstrip(_BLANKS)
    return core, sign


def _to_json(literal: str) -> int | float | str:
    """A number that JSON can express, else the unchanged text."""
    if len(literal) <= _LONGEST_INTEGER and _INTEGER.fullmatch(literal):
        return int(literal)
    number = float(literal)
    return number if math.isfinite(number) else literal
