"""Preconditions of writes (RFC 9110, 13): honoured where a revision exists, refused elsewhere, never ignored.

A correction of an event and a definition of a task have an ETag, the number of their revision. With `If-Match`, a
delayed resend of an older correction cannot replace a newer one. No other write takes a precondition, and none writes a
part of something: such a request is refused before its body is read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import MorrowError
from service.errors import Malformed, PreconditionFailed
from service.web.error_responses import problem_of

_MATCH, _NONE_MATCH = b"if-match", b"if-none-match"
_UNSUPPORTED = frozenset({b"if-modified-since", b"if-unmodified-since", b"if-range"})
_PARTS = frozenset({b"range", b"content-range"})
_ALL = _UNSUPPORTED | _PARTS | {_MATCH, _NONE_MATCH}
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_LIST = re.compile(rf"\s*(?:\*|{_TAG.pattern}(?:\s*,\s*{_TAG.pattern})*)\s*")
_MAX_SHOWN = 100
_TASK_PATH = re.compile(r"/tasks/[^/]+")


@dataclass(frozen=True)
class Preconditions:
    """The entity tags of `If-Match` and `If-None-Match`; None if a request lacks the header."""

    match: Sequence[str] | None = None
    none_match: Sequence[str] | None = None

    def check(self, revision: int | None) -> None:
        """Raise PreconditionFailed unless they hold for the current revision, which is None if nothing is stored."""
        etag = None if revision is None else etag_of(revision)
        if self.match is not None and (etag is None or not {etag, "*"} & {*self.match}):
            given = ", ".join(self.match)[:_MAX_SHOWN]
            now = "nothing is stored" if etag is None else f"the current ETag is {etag}"
            raise PreconditionFailed(
                f"If-Match: {given} does not hold, because {now}. Send the change again if it is still wanted, with "
                "the current ETag.",
                etag,
            )
        if self.none_match is not None and etag is not None and {etag, f"W/{etag}", "*"} & {*self.none_match}:
            given = ", ".join(self.none_match)[:_MAX_SHOWN]
            raise PreconditionFailed(f"If-None-Match: {given} does not hold, because the current ETag is {etag}.", etag)


def etag_of(revision: int) -> str:
    """The entity tag of a revision."""
    return f'"{revision}"'


def etag_line(revision: int) -> bytes:
    """The line of a head with the entity tag of a revision."""
    return b"etag: %b\r\n" % etag_of(revision).encode()


def read_preconditions(scope: Scope) -> Preconditions:
    """The preconditions of a write that honours them. Raises PreconditionFailed, Malformed."""
    found: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name in (_MATCH, _NONE_MATCH):
            text = value.decode("latin-1")
            if _LIST.fullmatch(text) is None:
                raise Malformed(f'{_show(name)} must be * or a list of ETags in quotation marks, such as "2".')
            found.setdefault(name, []).extend(["*"] if text.strip() == "*" else _TAG.findall(text))
        else:
            _refuse(name, "PUT takes If-Match and If-None-Match only")
    return Preconditions(found.get(_MATCH), found.get(_NONE_MATCH))


def refuse_preconditions(scope: Scope) -> None:
    """Raise PreconditionFailed or Malformed if a write that honours no precondition has one."""
    for name, _ in scope["headers"]:
        if name in _ALL:  # tested first, because each event gets here
            if name in (_MATCH, _NONE_MATCH):
                raise PreconditionFailed(f"This request takes no precondition: leave out {_show(name)}.")
            _refuse(name, "This request takes no precondition")


class RefusePreconditions:
    """ASGI middleware for the framework's routes, of which only the definition of a task honours preconditions."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_write = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if is_write and not (scope["method"] == "PUT" and _TASK_PATH.fullmatch(scope["path"])):
            try:
                refuse_preconditions(scope)
            except MorrowError as error:
                await problem_of(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refuse(name: bytes, why: str) -> None:
    if name in _UNSUPPORTED:
        raise PreconditionFailed(f"{why}: leave out {_show(name)}.")
    if name in _PARTS:
        raise Malformed(f"A write replaces the whole of something: leave out {_show(name)}.")


def _show(name: bytes) -> str:
    return name.decode("ascii").title()
