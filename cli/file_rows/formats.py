"""The file formats that `morrow events import` reads; the command line needs them without the readers."""

from pathlib import Path
from typing import Literal

from contracts.errors import Fault, InvalidInput

Format = Literal["csv", "ndjson", "parquet"]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "ndjson",
    ".ndjson": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
}
# Suffixes of compressed files, which follow that of the format.
COMPRESSED = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zip")


def choose_format(file: Path, given: Format | None) -> Format:
    """The given format, else the one of the suffix. Raises InvalidInput if the suffix is unknown."""
    if given is not None:
        return given
    if (found := find_format(file)) is None:
        raise InvalidInput([Fault(str(file), f"ends in none of {', '.join(SUFFIXES)}: name its --format")])
    return found


def find_format(file: Path) -> Format | None:
    """The format that a suffix says, that of compression aside; None if it is unknown."""
    inner = Path(file.stem) if file.suffix.lower() in COMPRESSED else file
    return SUFFIXES.get(inner.suffix.lower())
