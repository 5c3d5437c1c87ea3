"""What a person says about a file. Everything that is left out is found in the file, and said."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts.errors import Fault, InvalidInput
from service.advice.import_options import ImportOptions

Decimal = Literal["point", "comma"]


@dataclass(frozen=True)
class Options:
    """How to read a file; None and empty mean that the file decides.

    columns     our names, each with the name of a column of the file (`--map`)
    id_from     columns whose values together name a row
    dropped     columns that are not read
    missing     cells that mean a missing value, besides empty ones
    day_first   whether 01/02/2026 is in February
    unlabelled  whether a row without a label is kept until its label comes
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
    unlabelled: bool = False


DEFAULTS = Options()


def name_options(options: Options, format: Literal["csv", "ndjson", "parquet"] | None) -> ImportOptions:
    """The same as the record of an import keeps them, and as commands are spelled from."""
    return ImportOptions(
        format=format,
        encoding=options.encoding,
        separator=options.separator,
        quote=options.quote,
        columns=dict(options.columns),
        id_from=options.id_from,
        dropped=options.dropped,
        missing=tuple(sorted(options.missing)),
        timezone=options.timezone,
        day_first=options.day_first,
        at_format=options.at_format,
        decimal=options.decimal,
    )


def name_options_of_rejects(options: Options, rejects: Path) -> ImportOptions:
    """The options for a file of refused rows: those of the file that it came from, or none for NDJSON."""
    return name_options(options, None) if rejects.suffix == ".csv" else ImportOptions()


def split_mapping(given: str) -> tuple[str, str]:
    """Our name and the column's of `at=when`. Raises InvalidInput."""
    ours, sign, column = given.partition("=")
    if not sign or not ours.strip() or not column.strip():
        raise InvalidInput([Fault("--map", f"{given!r} is not of the form at=COLUMN")])
    return ours.strip(), column


def split_list(given: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part for part in (one.strip() for one in given.split(",")) if part)
