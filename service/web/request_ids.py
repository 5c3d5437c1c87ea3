"""The id of a request, by which its answer, its record in the access log and its problem belong together.

A client or proxy may choose it (`X-Request-Id`). Otherwise it is the mark of this process and a count, which costs a
hundredth of an answer. A trace that the request belongs to is named by `traceparent` (W3C Trace Context).
"""

import os
import re
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from starlette.types import Scope

HEADER = b"x-request-id"
# Where the id is, in the state of a request's scope, and who chooses it once somebody asks.
_REQUEST_ID, CHOOSER = "morrow.request_id", "morrow.request_ids"
# What can stand in a log, a shell and a URL as it is.
_SANE = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class RequestIds:
    """Chooses the ids of the requests of one process. A forked process must not inherit one."""

    def __init__(self) -> None:
        self._mark = os.urandom(8).hex()
        self._count = count(1)

    def choose(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The id that a request names, or else a new one."""
        for name, value in headers:
            if name == HEADER and _SANE.fullmatch(value):
                return value.decode("ascii")
        return self.make()

    def make(self) -> str:
        """A new id."""
        return f"{self._mark}-{next(self._count)}"


def request_id_of(scope: Mapping[str, Any]) -> str | None:
    """The id of a request, chosen when it is first asked for; None if no server is there to choose one."""
    state = scope.get("state", {})
    found: str | None = state.get(_REQUEST_ID)
    if found is None and (chooser := state.get(CHOOSER)) is not None:
        found = state[_REQUEST_ID] = chooser.choose(scope["headers"])
    return found


def trace_id_of(scope: Scope) -> str | None:
    """The id of the trace that a request belongs to; None if it names none, several or a broken one."""
    named = [value for name, value in scope.get("headers", ()) if name == b"traceparent"]
    if len(named) != 1:
        return None
    text = named[0].decode("latin-1")
    found = _TRACEPARENT.fullmatch(text)
    # Version 00 ends here; a later one may go on.
    return None if found is None or (text.startswith("00") and found[2] is not None) else found[1]
