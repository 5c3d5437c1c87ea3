"""Where the parts of a running `morrow up` answer: it leaves word below its home for commands in another terminal."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cli.client.addresses import LOCAL_URL

FILE = "stack.json"


class Announced(msgspec.Struct, frozen=True):
    """Of the parts that speak HTTP."""

    api: str
    mlflow: str


def exports_for(home: Path, api: str) -> Iterator[str]:
    """What a shell must export for commands to find a stack that is not where they look by themselves."""
    if (folder := home.expanduser().resolve()) != (Path.home() / ".morrow").resolve():
        yield f"MORROW_HOME={shlex.quote(str(folder))}"
    if api != LOCAL_URL:
        yield f"MORROW_URL={api}"


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
