"""The file formats that `morrow events import` reads; the command line needs them without the readers."""

from pathlib import Path
from typing import Literal

from contracts.errors import Fault, InvalidInput

Format = Literal["csv", "ndjson", "parquet"]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "ndjson",
    ".ndjson": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def choose_format(file: Path, given: Format | None) -> Format:
    """The given format, else the one of the suffix. Raises InvalidInput if the suffix is unknown."""
    if given is not None:
        return given
    if (found := SUFFIXES.get(file.suffix.lower())) is None:
        raise InvalidInput([Fault(str(file), f"ends in none of {', '.join(SUFFIXES)}: name its --format")])
    return found
