"""Options of commands that read a file of rows, and what they say about it."""

from pathlib import Path
from typing import Annotated

import typer

from cli.file_rows.formats import Format
from cli.reading.options import Decimal, Options, split_list, split_mapping

FormatOption = Annotated[Format | None, typer.Option("--format", help="Format of the file. Default: by its suffix.")]
Timezone = Annotated[
    str | None,
    typer.Option(help="Zone of moments without an offset, such as Europe/Berlin or UTC.", show_default=False),
]
DayFirst = Annotated[
    bool | None, typer.Option("--dayfirst/--monthfirst", help="Order in dates such as 01/02/2026.", show_default=False)
]
AtFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="Form of moments, such as '%d.%m.%y %H:%M'.")]
Missing = Annotated[
    list[str] | None, typer.Option(help="Cells that mean a missing value, such as NA,-. Empty ones always do.")
]
DecimalMark = Annotated[Decimal | None, typer.Option(help="Decimal mark. Default: as each column shows it.")]
Drop = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column not to read. May be repeated.")]
Separator = Annotated[str | None, typer.Option(help="Separator of CSV: one character, or tab.")]
Quote = Annotated[str | None, typer.Option(help="Quotation mark of CSV: one character, or none.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding, such as windows-1252.")]


def require_file(file: Path) -> Path:
    """The file, which exists and is no folder; `-` stands for standard input. Raises BadParameter."""
    if str(file) != "-" and (file.is_dir() or not file.exists()):
        raise typer.BadParameter(f"file {str(file)!r} {'is a folder' if file.is_dir() else 'does not exist'}.")
    return file


def make_options(
    *,
    timezone: str | None,
    day_first: bool | None,
    at_format: str | None,
    missing: list[str] | None,
    decimal: Decimal | None,
    drop: list[str] | None,
    separator: str | None,
    quote: str | None,
    encoding: str | None,
    columns: list[str] | None = None,
    id_from: str | None = None,
    unlabelled: bool = False,
) -> Options:
    """The options of a reader. Raises InvalidInput."""
    return Options(
        encoding=encoding,
        separator=separator,
        quote=quote,
        columns=tuple(map(split_mapping, columns or [])),
        id_from=split_list(id_from or ""),
        dropped=tuple(drop or []),
        missing=frozenset(cell for given in missing or [] for cell in split_list(given)),
        timezone=timezone,
        day_first=day_first,
        at_format=at_format,
        decimal=decimal,
        unlabelled=unlabelled,
    )
