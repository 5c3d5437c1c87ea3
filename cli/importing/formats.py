"""The formats of files that `morrow events import` reads."""

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
    """The format as given, else by the suffix. Raises InvalidInput where that says nothing."""
    if given is not None:
        return given
    if (found := SUFFIXES.get(file.suffix.lower())) is None:
        raise InvalidInput([Fault(str(file), f"ends in none of {', '.join(SUFFIXES)}: say its --format")])
    return found
