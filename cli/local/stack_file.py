"""A file below the home folder of a running `morrow up` with its addresses, for commands in another terminal."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cli.client.options import LOCAL_URL
from contracts.runtime.settings import default_home

FILE = "stack.json"


class StackUrls(msgspec.Struct, frozen=True):
    """Addresses of the parts that speak HTTP."""

    api: str
    mlflow: str


def exports_for(home: Path, api: str) -> Iterator[str]:
    """The variables that a shell must export for commands to find a stack that is not at the default place."""
    if (folder := home.expanduser().resolve()) != default_home().resolve():
        yield f"MORROW_HOME={shlex.quote(str(folder))}"
    if api != LOCAL_URL:
        yield f"MORROW_URL={api}"


@contextmanager
def stack_file(home: Path, urls: StackUrls) -> Iterator[None]:
    """Keep the file while the block runs. After a kill -9 it stays, with addresses that do not answer."""
    file = home / FILE
    file.write_bytes(msgspec.json.encode(urls))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read_stack_file(home: Path) -> StackUrls | None:
    """The addresses of the home's stack; None if none runs."""
    try:
        return msgspec.json.decode((home / FILE).read_bytes(), type=StackUrls)
    except (OSError, msgspec.MsgspecError):
        return None
