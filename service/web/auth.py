"""Authentication: every request needs a key, checked before its body is read.

If there is no key, a process that listens on the loopback only answers every client. Any other process refuses all,
unless its settings say that a proxy in front authenticates. A key is sent as `Authorization: Bearer KEY`, or as the
password of HTTP Basic. A browser that opens a page without a key gets a page that asks for one. If a page of another
site makes a browser send a request, it is refused. So no open tab can control a service that trusts its machine.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import MorrowError
from service.errors import Forbidden, Unauthenticated
from service.settings import ServiceSettings
from service.web.error_responses import problem_of
from service.web.html import accepts_html, answer_page, is_page
from service.web.keys.api_keys import ApiKeys
from service.web.keys.task_access import RequireTask, limit_to_tasks
from service.web.problems import PROBLEM
from store.api_keys import Scope as KeyScope

HEALTH = frozenset({"/livez", "/readyz"})
# The same of other protocols.
_PROTOCOLS_HEALTH = frozenset({"/v2/health/live", "/v2/health/ready", "/ping"})
PUBLIC = {"docs": frozenset({"/docs", "/openapi.json"}), "metrics": frozenset({"/metrics"})}
_STATIC = "/static/"
_EVENTS = re.compile(r"/tasks/[^/]+/events")
# The ends of paths of other protocols that ask for predictions (`service.protocols`).
_ASKING = ("/invocations", "/infer")
_INGEST = re.compile(r"/tasks/[^/]+/(labels|imports(/[^/]+/retract)?)")
# Answers with the values of events, or about one.
_FIT_ROWS = re.compile(r"/tasks/[^/]+/versions/[^/]+/rows")
_EVENT_VERSIONS = re.compile(r"/tasks/[^/]+/events/.+/versions", re.DOTALL)
# Where the name of a request's key is, in the state of its scope.
KEY_NAME = "morrow.key"
_LONGEST_HEADER = 1024


class Authenticator:
    """Admits requests by the keys and settings of one app."""

    def __init__(
        self,
        api_keys: ApiKeys,
        settings: ServiceSettings,
        find_served: Callable[[str], int | None],
        require_task: RequireTask,
    ) -> None:
        self._api_keys = api_keys
        self._find_served, self._require_task = find_served, require_task
        self._allows_anonymous = settings.allow_anonymous or is_loopback(settings.host)

    async def admit(self, scope: Scope) -> None:
        """Let a request pass, and note its key. Raises Unauthenticated, Forbidden, TaskRenamed, Throttled, NoKeys,
        Unavailable.
        """
        _refuse_other_sites(scope)
        if self._allows_anonymous and await self._api_keys.is_empty():
            return
        if len(_list_authorizations(scope)) > 1:
            raise Unauthenticated("The request has more than one Authorization header: send one, with one key.")
        key = await self._api_keys.admit(read_token(scope), needed_scope(scope["method"], scope["path"]))
        scope.setdefault("state", {})[KEY_NAME] = key.name
        await limit_to_tasks(key, scope, self._find_served, self._require_task)

    def admits_at_once(self, scope: Scope) -> bool:
        """Whether `admit` would let a GET pass without waiting, and without counting it against the key's rate.

        Its key is noted, as `admit` notes it.

        This holds for a known key without a rate that is for every task, and for every client while there is no key and
        none is needed.
        """
        if not self._api_keys.keys:
            return self._api_keys.keys is not None and self._allows_anonymous
        key = self._api_keys.find(read_token(scope))
        if key is None or key.rate is not None or key.task_ids is not None:
            return False
        scope.setdefault("state", {})[KEY_NAME] = key.name
        return key.allows(needed_scope(scope["method"], scope["path"]))


class AuthenticationMiddleware:
    """ASGI middleware in front of the framework's routes."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, settings: ServiceSettings) -> None:
        self._app = app
        self._authenticator = authenticator
        self._open = HEALTH.union(_PROTOCOLS_HEALTH, *(PUBLIC[name] for name in settings.public))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            try:
                await self._authenticator.admit(scope)
            except MorrowError as error:
                await refuse(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(_STATIC)


def refuse(error: MorrowError, scope: Scope) -> Response:
    """The answer to a request that is not admitted: a page if a browser opens one of our pages, otherwise a problem.

    The request's body is not read, so no other request can follow on its connection.
    """
    problem = problem_of(error)
    answer: Response = problem
    wants_page = accepts_html(scope)
    if wants_page and is_page(scope["path"]):
        title = "This page needs a key" if answer.status_code == 401 else "This page cannot be shown now"
        detail = str(error)
        scope.setdefault("state", {})[PROBLEM] = problem.problem
        answer = answer_page("sign_in.html", scope["path"], answer.status_code, title=title, detail=detail)
        wants_page = False
    answer.headers["Connection"] = "close"
    if answer.status_code == 401:
        answer.headers["WWW-Authenticate"] = _ASK_BROWSER if wants_page else "Bearer"
    return answer


def needed_scope(method: str, path: str) -> KeyScope | None:
    """The scope that a request needs; None if any valid key is enough."""
    is_asking = method == "POST" and path.endswith(_ASKING)
    if path == "/predict" or path.startswith("/predictions/") or is_asking:
        return "predict"
    if path == "/events" or path.startswith("/events/") or _EVENTS.fullmatch(path):
        return "ingest"
    if _FIT_ROWS.fullmatch(path) or path == "/hooks" or path.startswith("/hooks/"):
        return "admin"
    if _EVENT_VERSIONS.fullmatch(path):
        return "ingest"
    if method in ("GET", "HEAD", "OPTIONS"):
        return None
    # A key that may import may retract it: it could correct every one of these events as well.
    return "ingest" if _INGEST.fullmatch(path) else "admin"


def read_token(scope: Scope) -> str | None:
    """The key that a request carries, valid or not; None if it carries none, or more than one."""
    headers = _list_authorizations(scope)
    if len(headers) != 1:
        return None
    header = headers[0]
    kind, _, value = header[:_LONGEST_HEADER].partition(b" ")
    try:
        if kind.lower() == b"bearer":
            return value.strip().decode("ascii")
        if kind.lower() == b"basic":
            return base64.b64decode(value.strip(), validate=True).decode("ascii").partition(":")[2]
    except (UnicodeDecodeError, binascii.Error):
        return None
    return None


def key_name_of(scope: Scope) -> str | None:
    """The name of the key that a request came with, if one was needed."""
    found: str | None = scope.get("state", {}).get(KEY_NAME)
    return found


def actor_of(request: Request, given: str | None) -> str:
    """The actor of a request, for the record: the key's name, with the name that the request gives."""
    key = key_name_of(request.scope)
    if key is None:
        return given or "admin"
    return key if given is None else f"{given} (key {key})"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_other_sites(scope: Scope) -> None:
    """Raise Forbidden if a browser says that a page of another site sent a request that may change something.

    Such a page can never read an answer; nor may it start a cycle if no key is needed.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    if _find_header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site"):
        raise Forbidden("A page of another site sent this request.")


def _list_authorizations(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"authorization"]


def _find_header(scope: Scope, name: bytes) -> bytes | None:
    for given, value in scope["headers"]:  # a plain loop: every request needs it twice
        if given == name:
            return bytes(value)
    return None


# A browser can also open a path without a page of its own, such as /metrics.
_ASK_BROWSER = 'Basic realm="Morrow: the key is the password", charset="UTF-8"'
