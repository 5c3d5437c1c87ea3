"""What every entry process does first, and how it says in sentences that it cannot go on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from contracts.errors import MorrowError
from contracts.runtime.surroundings import PREFIX, settle


def begin() -> None:
    """Make this process independent of its surroundings, and warn of variables that were passed over."""
    for one in settle():
        sys.stderr.write(f"Warning: {one.variable}={one.value} is passed over. {one.reason}.\n")


@contextmanager
def sentences() -> Iterator[None]:
    """End the process with code 1 and a sentence on standard error if a setting or a server is at fault."""
    try:
        yield
    except Exception as error:
        if (sentence := as_sentence(error)) is None:
            raise
        sys.stderr.write(f"{sentence}\n")
        sys.exit(1)


def as_sentence(error: Exception) -> str | None:
    """What a person should read of this error; None if it is a bug, which keeps its traceback."""
    if isinstance(error, MorrowError):
        return str(error)
    if "pydantic" not in sys.modules:  # and so none of its errors can have been raised
        return None
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    prefix = PREFIX if error.title.endswith("Settings") else ""
    return "\n".join(
        f"{_name_field(fault['loc'], prefix)}: {_reason(fault['msg'])}" for fault in error.errors(include_url=False)
    )


def _name_field(path: tuple[int | str, ...], prefix: str) -> str:
    """A field under the name that people write: for a setting, its environment variable."""
    name = ".".join(map(str, path))
    return prefix + name.upper() if prefix else name


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ")
