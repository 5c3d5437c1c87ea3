"""What every entry process does first, and how it says in sentences that it cannot go on."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from contracts.errors import MorrowError
from contracts.runtime.surroundings import PREFIX, settle

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def begin() -> None:
    """Make this process independent of its surroundings, and warn of variables that were passed over."""
    for one in settle():
        sys.stderr.write(f"Warning: {one.variable}={one.value} is passed over: {one.reason}.\n")


@contextmanager
def exit_with_sentence() -> Iterator[None]:
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
        f"{_name_field(fault['loc'], prefix)}: {_reason(fault)}"
        for fault in error.errors(include_url=False)
        if fault["type"] != "default_factory_not_called"  # a default that follows from a faulty value
    )


def _name_field(path: tuple[int | str, ...], prefix: str) -> str:
    """A field under the name that people write: for a setting, its environment variable."""
    name = ".".join(map(str, path))
    return prefix + name.upper() if prefix else name


def _reason(fault: "ErrorDetails") -> str:
    """What is wrong, with a word or number that was given. A longer value, such as a URL, may hold a password."""
    reason, given = fault["msg"].removeprefix("Value error, "), fault["input"]
    is_plain = isinstance(given, str) and re.fullmatch(r"[\w.,+-]{1,40}", given) and repr(given) not in reason
    return f"{reason} (given: {given!r})" if is_plain else reason
