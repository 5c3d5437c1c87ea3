"""What a person says about a file. Everything that is left out is found in the file, and said."""

from dataclasses import dataclass
from typing import Literal

from contracts.errors import Fault, InvalidInput

Decimal = Literal["point", "comma"]


@dataclass(frozen=True)
class Options:
    """How to read a file; None and empty mean that the file decides.

    columns     our names, each with the name of a column of the file (`--map`)
    id_from     columns whose values together name a row
    dropped     columns that are not read
    missing     cells that mean a missing value, besides empty ones
    day_first   whether 01/02/2026 is in February
    """

    encoding: str | None = None
    separator: str | None = None
    quote: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    id_from: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    timezone: str | None = None
    day_first: bool | None = None
    at_format: str | None = None
    decimal: Decimal | None = None


DEFAULTS = Options()


def split_mapping(given: str) -> tuple[str, str]:
    """Our name and the column's of `at=when`. Raises InvalidInput."""
    ours, sign, column = given.partition("=")
    if not sign or not ours.strip() or not column.strip():
        raise InvalidInput([Fault("--map", f"{given!r} is not of the form at=COLUMN")])
    return ours.strip(), column


def split_list(given: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part for part in (one.strip() for one in given.split(",")) if part)
