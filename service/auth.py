"""Who may ask: a key in every request, judged before the body is read.

While no key is known, a process that listens on the loopback only answers anyone; any other answers nobody, unless its
settings say that something in front of it knows who is asking. A key comes as `Authorization: Bearer KEY`, or as the
password of HTTP Basic, which is how a browser asks for one.
"""

import base64
import binascii
import ipaddress

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import MorrowError
from contracts.keys import Scope as KeyScope
from service.keyring import Keyring
from service.problems import problem_of
from service.settings import ServiceSettings

HEALTH = frozenset({"/livez", "/readyz"})
PUBLIC = {"docs": frozenset({"/docs", "/openapi.json"}), "metrics": frozenset({"/metrics"})}
_NAME = "morrow.key"
_LONGEST_HEADER = 1024


class Authenticate:
    """ASGI middleware in front of every route."""

    def __init__(self, app: ASGIApp, keyring: Keyring, settings: ServiceSettings) -> None:
        self._app = app
        self._keyring = keyring
        self._open = HEALTH.union(*(PUBLIC[name] for name in settings.public))
        self._may_be_anonymous = settings.allow_anonymous or is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open and not await self._is_anyone():
            try:
                key = await self._keyring.admit(read_token(scope), needed_scope(scope["method"], scope["path"]))
            except MorrowError as error:
                answer = problem_of(error)
                # The body is not read, so nothing else can follow on this connection.
                answer.headers["Connection"] = "close"
                if answer.status_code == 401:
                    answer.headers["WWW-Authenticate"] = _challenge(scope)
                await answer(scope, receive, send)
                return
            scope.setdefault("state", {})[_NAME] = key.name
        await self._app(scope, receive, send)

    async def _is_anyone(self) -> bool:
        return self._may_be_anonymous and await self._keyring.is_empty()


def needed_scope(method: str, path: str) -> KeyScope | None:
    """The scope that a request needs; None where any valid key will do."""
    if path == "/predict":
        return "predict"
    if path == "/events" or path.startswith("/events/"):
        return "ingest"
    return None if method in ("GET", "HEAD", "OPTIONS") else "admin"


def read_token(scope: Scope) -> str | None:
    """The key that a request carries, valid or not; None where it carries nothing of the kind."""
    header: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    kind, _, value = header[:_LONGEST_HEADER].partition(b" ")
    try:
        if kind.lower() == b"bearer":
            return value.strip().decode("ascii")
        if kind.lower() == b"basic":
            return base64.b64decode(value.strip(), validate=True).decode("ascii").partition(":")[2]
    except (UnicodeDecodeError, binascii.Error):
        return None
    return None


def actor_of(request: Request, given: str | None) -> str:
    """Who asks, for the record: the key's name, beside what the request calls itself."""
    key: str | None = request.scope.get("state", {}).get(_NAME)
    if key is None:
        return given or "admin"
    return key if given is None else f"{given} (key {key})"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _challenge(scope: Scope) -> str:
    """A browser that opens a page is told to ask for a password, a program to send a key."""
    if any(name == b"accept" and b"text/html" in value for name, value in scope["headers"]):
        return 'Basic realm="Morrow: the key is the password", charset="UTF-8"'
    return "Bearer"
