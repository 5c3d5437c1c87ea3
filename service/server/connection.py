"""What a client can do on one connection: uvicorn's protocol, with bounds on the head of a request.

Seven things differ from uvicorn:

- Heads. uvicorn reads a head of any size into memory, and any trailers after the last chunk of a body. Here both
  have a largest size, and a head has a time limit. `service.web.bodies` limits bodies.
- Hosts. uvicorn does not check the Host header. A client of HTTP/1.1 must send exactly one; here, a request with none
  or two is refused, because a proxy in front may have read another request (RFC 9112, 3.2).
- Transfer codings. uvicorn takes a body for plain, whatever coding it has before it is cut into chunks. Here such a
  request is refused (RFC 9112, 6.1).
- Slow readers. uvicorn keeps an answer until its client has read it. Here, a connection is closed if its client reads
  next to nothing.
- Other protocols. uvicorn's parser drops the body of a request that offers one, as each request of Java's HttpClient
  and of `curl --http2` does. Here the offer is ignored, and the request is read as HTTP/1.1 (RFC 9110, 7.8).
- Stops. uvicorn closes idle connections at once, although a request may be on its way. Here, such a request is still
  answered, with `Connection: close`.
- Refused bodies. uvicorn closes a connection in the midst of a body, so that its client may never read why it is
  refused. Here, the rest of the body is read for some seconds, and dropped (RFC 9112, 9.6).

If anything else ends a connection, complete requests before it are answered first, provided that the client still
reads. So the refusal of one request never answers another, and an answer that no client can receive is no error.

Requests that the application's fast path can answer (`service.app`) need no task, and are sent by one call.
"""

import asyncio
import re
from functools import partial
from typing import Any

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.server.broken_requests import HTTP_2, explain_broken_request
from service.web.encoded_answer import EncodedAnswer
from service.web.problems import HTTP_KINDS, write_problem
from service.web.request_ids import CHOOSER, HEADER, RequestIds, request_id_of

MAX_HEAD_BYTES = 65_536
HEAD_SECONDS = 30.0
# A client must read at least this many bytes of a waiting answer in this many seconds.
LEAST_READ_BYTES = 32_768
READ_SECONDS = 30.0
# Seconds after a stop in which requests on open connections are still answered.
LINGER_SECONDS = 3.0
# Seconds in which the rest of a refused body is still read.
DROP_SECONDS = 10.0


class Connection(HttpToolsProtocol):
    """One connection, from its first byte to its last."""

    head_seconds = HEAD_SECONDS
    read_seconds = READ_SECONDS
    linger_seconds = LINGER_SECONDS
    drop_seconds = DROP_SECONDS

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._request_ids: RequestIds | None = getattr(self.config.loaded_app, "request_ids", None)
        self._default_headers: Any = None
        self._default_lines = b""
        self._is_in_head = False
        self._is_offer = False  # the head that was just read offers another protocol
        self._opening = b""  # the first bytes, until a request is complete
        self._num_fed = 0  # bytes of the piece that is being read, if one is
        self._num_begun = 0  # bytes of the piece in which the head began that is being read
        self._num_open = 0  # bytes of the pieces since that one, or since one with a part of a body
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._is_ending = False
        self._is_stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A client may open a connection long before its first request, as it may wait between two.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._unset_keepalive_if_required()
        if self.cycle is None:
            self._opening = (self._opening + data)[: len(HTTP_2)]
        self._num_fed = len(data)
        self._num_open += self._num_fed
        self._parse(data)
        self._num_fed = 0
        if self._is_ending:
            return
        if self._is_in_head or (self.timeout_keep_alive_task is None and self._is_idle):
            self._start_head_timer()
        if self._num_open > MAX_HEAD_BYTES:
            self._refuse(431, _TOO_LARGE)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: a client that has stopped sending may still read its answer."""
        if not self._awaits_answer:
            return False
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_head_timer()
        self._stop_read_timer()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        if self._running is not None:  # uvicorn notifies only the newest request; an older one may be running
            self._running.disconnected = True
            self._running.message_event.set()

    def shutdown(self) -> None:
        """Answer what is asked on this connection for some seconds more, then close it."""
        self._is_stopping = True
        if self._is_idle:
            self._linger_timer = self.loop.call_later(self.linger_seconds, self._end_idle)
        else:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        if not self._is_offer:
            self._num_begun, self._num_open = self._num_fed, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._is_offer = False
        self._stop_head_timer()
        if self.parser.should_upgrade():
            if self.parser.get_method() != b"CONNECT":
                self._is_offer = True  # `_parse` reads this head again
                return
            self.app, self.url = partial(self._refuse_head, 400, _NO_PROXY), b"/"
        elif self._num_begun + self._num_open > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES:
            self.app = partial(self._refuse_head, 431, _TOO_LARGE)
            self.url = b"/"  # uvicorn's URL parser fails on a URL longer than the limit of a head
        elif not self._names_host():
            self.app = partial(self._refuse_head, 400, _NO_HOST)
        elif self._is_transformed():
            self.app = partial(self._refuse_head, 501, self._say_codings())
        elif self.url[:1] != b"/":
            self.url = _as_path(self.url)
        self._num_open = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._is_offer:
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._num_open = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Try the application's fast path, which needs no task, for a request that has just been read.

        A queued request gets a task: without one, its answer would be a call within the call of the previous answer.
        This method is private to uvicorn, so uvicorn is pinned to a version that `test_pinned_uvicorn.py` checks.
        """
        self._running = cycle
        cycle.scope["state"][CHOOSER] = self._request_ids
        if self._is_stopping and not self.pipeline:
            cycle.keep_alive = False
        if cycle.scope["method"] not in ("GET", "HEAD"):
            cycle.transport = _AnsweringTransport(self, cycle)  # type: ignore[assignment]  # all that a cycle uses
        try_fast_path = getattr(app, "try_fast_path", None)
        if try_fast_path is None or not self._num_fed or self.flow.write_paused:
            self._start_task(cycle, app)
        else:
            try_fast_path(cycle.scope, partial(self._reply, cycle))

    def end_answered(self, cycle: RequestResponseCycle) -> None:
        """End the connection after its last answer; a client that is still sending a body gets to read that answer."""
        if not cycle.more_body or cycle.disconnected:
            self.transport.close()
            return
        self._is_ending = True  # what comes now is dropped
        self.flow.resume_reading()
        self.transport.write_eof()
        self._linger_timer = self.loop.call_later(self.drop_seconds, self.transport.close)

    def _reply(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Send a complete answer, or start a task for the application that makes one."""
        if isinstance(app, EncodedAnswer):
            self._write_whole(cycle, app)
        else:
            self._start_task(cycle, app)

    def _start_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a task whose answer has the id of the request in its head."""
        if (request_id := request_id_of(cycle.scope)) is not None:
            cycle.default_headers = [*cycle.default_headers, (HEADER, request_id.encode())]
        super()._start_asgi_task(cycle, app)

    def _write_whole(self, cycle: RequestResponseCycle, answer: EncodedAnswer) -> None:
        """Write a 200 in JSON by one system call; uvicorn takes two, one for the head and one for the body."""
        cycle.response_started = cycle.response_complete = True
        if cycle.disconnected:
            return
        cycle.message_event.set()
        if cycle.default_headers is not self._default_headers:  # uvicorn makes others each second
            self._default_headers = cycle.default_headers
            self._default_lines = b"".join([b"%s: %s\r\n" % header for header in self._default_headers])
        if (request_id := request_id_of(cycle.scope)) is not None:
            name = b"%b: %b\r\n" % (HEADER, request_id.encode())
        else:
            name = b""
        size = b"content-length: %d\r\n" % len(answer.body)
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(b"".join([_HEAD, self._default_lines, name, size, answer.head, end, answer.body]))
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _parse(self, data: bytes) -> None:
        """Feed the parser, which stops behind the head of a request that offers another protocol.

        It took the request's body for bytes of that protocol. So a new parser reads the head without the offer, and
        then the rest.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                if not self._is_offer:  # CONNECT: nothing after it is a request
                    self._end()
                    return
                data = self._write_head() + data[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            except httptools.HttpParserError as error:
                self._refuse(400, explain_broken_request(self._opening, data, error))
                return
            else:
                return

    def _write_head(self) -> bytes:
        """The head that was just read, without its offer of another protocol."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")  # noqa: PLW2901 what is left of it
            if name != b"upgrade":
                lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join([*lines, b"\r\n"])

    @property
    def _is_idle(self) -> bool:
        """Whether every request that has begun is answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _awaits_answer(self) -> bool:
        """Whether the newest request is complete and waits for its answer."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _refuse(self, status: int, detail: str) -> None:
        """Answer the request that is being read, unless an earlier answer is due, and end the connection."""
        is_due = bool(self.pipeline) or (self.cycle is not None and self.cycle.response_started)
        if self._is_idle or not (is_due or self._awaits_answer):
            answer = write_problem(HTTP_KINDS[status], detail, {"Connection": "close"})
            request_id = None if self._request_ids is None else self._request_ids.make()
            if request_id is not None:
                answer.add({"request_id": request_id})
                answer.headers[HEADER.decode()] = request_id
            lines = [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", bytes(answer.body)]))
            self._note_unread(status, answer.problem, detail, request_id)
        self._end()

    async def _refuse_head(self, status: int, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
        """The application that answers a request with a refused head."""
        answer = write_problem(HTTP_KINDS[status], detail, {"Connection": "close"})
        self._note_unread(status, answer.problem, detail, request_id_of(scope))
        await answer(scope, receive, send)

    def _note_unread(self, status: int, problem: str, detail: str, request_id: str | None) -> None:
        """Count and log a refusal, if the application does that."""
        answered = getattr(self.config.loaded_app, "answered", None)
        if answered is not None:
            answered.note_unread(status, problem, detail, request_id)

    def _end(self) -> None:
        """Stop reading, and close the connection once complete requests are answered."""
        self._is_ending = True
        if self._awaits_answer:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def _end_idle(self) -> None:
        if self._is_idle:  # otherwise the answer closes the connection
            self._end()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._end_slow_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_slow_head(self) -> None:
        if self._is_in_head:
            self._refuse(408, "The head of the request did not arrive in time.")
        else:
            self._end()

    def _start_read_timer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.read_seconds, self._end_slow_reader, left)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _end_slow_reader(self, former: int) -> None:
        """Close the connection at once if the client has read too little; sent bytes can still be read."""
        if former - self.transport.get_write_buffer_size() < LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._start_read_timer()

    def _names_host(self) -> bool:
        """Whether the request names one host; HTTP/1.0 and older may name none."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if not hosts:
            return self.parser.get_http_version() < "1.1"
        return len(hosts) == 1 and _HOST.fullmatch(hosts[0]) is not None

    def _is_transformed(self) -> bool:
        """Whether the body is sent in another transfer coding than chunks, or in several (RFC 9112, 6.1)."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        return bool(codings) and b",".join(codings).strip(b" \t,").lower() != b"chunked"

    def _say_codings(self) -> str:
        """Why they are refused, with those that were sent."""
        codings = b", ".join(value for name, value in self.headers if name == b"transfer-encoding")
        return f"Transfer-Encoding is {codings.decode('latin-1')[:40]!r}. {_NO_TRANSFER}"

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)


class _AnsweringTransport:
    """Where the answer to one request with a body is written to."""

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self.write, self.is_closing = connection.transport.write, connection.transport.is_closing

    def close(self) -> None:
        self._connection.end_answered(self._cycle)


_HEAD = STATUS_LINE[200] + b"content-type: application/json\r\n"
_TOO_LARGE = f"The request line and the headers may have at most {MAX_HEAD_BYTES} bytes."
_NO_HOST = "A request of HTTP/1.1 must have one Host header, with a host and nothing else."
_NO_TRANSFER = (
    "The body must be sent with Content-Length, or with Transfer-Encoding: chunked and no other coding. If it is "
    "compressed, say so by Content-Encoding: gzip."
)
_NO_PROXY = "CONNECT is a request to a proxy, and Morrow is none: send the request itself."
# Characters of a name or an address, and a port (RFC 3986, 3.2.2); it may be empty.
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")


def _as_path(target: bytes) -> bytes:
    """The path and query of a target that names the server too, such as `http://host/path` (RFC 9112, 3.2.2)."""
    parsed = httptools.parse_url(target)
    if parsed.path is not None:
        return target
    return b"/" if parsed.query is None else b"/?" + parsed.query
