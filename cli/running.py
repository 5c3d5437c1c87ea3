"""Where the parts of a running `morrow up` answer: it leaves word below its home for commands in another terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

FILE = "stack.json"


class Announced(msgspec.Struct, frozen=True):
    """Of the parts that speak HTTP."""

    api: str
    mlflow: str


@contextmanager
def announced(home: Path, addresses: Announced) -> Iterator[None]:
    """Leave word while the block runs. After a kill it stays, and nobody answers there."""
    file = home / FILE
    file.write_bytes(msgspec.json.encode(addresses))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def find_stack(home: Path) -> Announced | None:
    """The addresses of the stack of a home; None where none is running."""
    try:
        return msgspec.json.decode((home / FILE).read_bytes(), type=Announced)
    except (OSError, msgspec.MsgspecError):
        return None
