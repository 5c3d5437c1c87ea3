"""Who may ask: a key in every request, judged before the body is read.

While no key is known, a process that listens on the loopback only answers anyone; any other answers nobody, unless its
settings say that something in front of it knows who is asking. A key comes as `Authorization: Bearer KEY`, or as the
password of HTTP Basic. A browser that opens a page without one gets a page that asks for it; and whatever a page of
another site makes a browser send is refused, so that nobody's open tab can steer a service that trusts the machine.
"""

import base64
import binascii
import ipaddress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import MorrowError
from service.errors import Forbidden
from service.settings import ServiceSettings
from service.web.api_keys import ApiKeys
from service.web.error_responses import problem_of
from service.web.html import answer_page
from store.keys import Scope as KeyScope

HEALTH = frozenset({"/livez", "/readyz"})
PUBLIC = {"docs": frozenset({"/docs", "/openapi.json"}), "metrics": frozenset({"/metrics"})}
_PAGES = ("/pages/", "/problems/")
_STATIC = "/static/"
_NAME = "morrow.key"
_LONGEST_HEADER = 1024


class Authenticate:
    """ASGI middleware in front of every route."""

    def __init__(self, app: ASGIApp, api_keys: ApiKeys, settings: ServiceSettings) -> None:
        self._app = app
        self._api_keys = api_keys
        self._open = HEALTH.union(*(PUBLIC[name] for name in settings.public))
        self._may_be_anonymous = may_be_anonymous(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            try:
                _refuse_other_sites(scope)
                if not await self._is_anyone():
                    key = await self._api_keys.admit(read_token(scope), needed_scope(scope["method"], scope["path"]))
                    scope.setdefault("state", {})[_NAME] = key.name
            except MorrowError as error:
                await _refusal(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(_STATIC)

    async def _is_anyone(self) -> bool:
        return self._may_be_anonymous and await self._api_keys.is_empty()


def is_admitted(scope: Scope, api_keys: ApiKeys, *, may_be_anonymous: bool) -> bool:
    """Whether there is no doubt that `Authenticate` lets a request pass and has nothing to count or to wait for.

    That is a known key without a rate that holds the scope, or anyone while there is no key and none is needed.
    """
    if not api_keys.keys:
        return api_keys.keys is not None and may_be_anonymous
    key = api_keys.find(read_token(scope))
    return key is not None and key.rate is None and key.allows(needed_scope(scope["method"], scope["path"]))


def needed_scope(method: str, path: str) -> KeyScope | None:
    """The scope that a request needs; None where any valid key will do."""
    if path == "/predict":
        return "predict"
    if path == "/events" or path.startswith("/events/"):
        return "ingest"
    return None if method in ("GET", "HEAD", "OPTIONS") else "admin"


def read_token(scope: Scope) -> str | None:
    """The key that a request carries, valid or not; None where it carries nothing of the kind."""
    header = _header(scope, b"authorization") or b""
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


def may_be_anonymous(settings: ServiceSettings) -> bool:
    """Whether anyone may ask while there is no key."""
    return settings.allow_anonymous or is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_other_sites(scope: Scope) -> None:
    """Raises Forbidden where a browser says that a page of another site has it send something.

    No such page may read an answer in any case; but neither may it cause a cycle where no key is asked for.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    if _header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site"):
        raise Forbidden("A page of another site has sent this.")


def _refusal(error: MorrowError, scope: Scope) -> Response:
    """For a browser that opens one of our pages another page, else the problem."""
    answer = problem_of(error)
    is_read = b"text/html" in (_header(scope, b"accept") or b"")
    if is_read and _is_page(scope["path"]):
        title = "This page needs a key" if answer.status_code == 401 else "This page cannot be shown now"
        said = str(error)
        answer = answer_page("sign_in.html", scope["path"], answer.status_code, title=title, detail=said)
        is_read = False
    # The body is not read, so nothing else can follow on this connection.
    answer.headers["Connection"] = "close"
    if answer.status_code == 401:
        answer.headers["WWW-Authenticate"] = _ASK_BROWSER if is_read else "Bearer"
    return answer


def _is_page(path: str) -> bool:
    return path in ("/", "/docs") or path.startswith(_PAGES)


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for given, value in scope["headers"] if given == name), None)


# What has no page of its own, such as /metrics, a browser can open all the same.
_ASK_BROWSER = 'Basic realm="Morrow: the key is the password", charset="UTF-8"'
