"""A way to MLflow on which a test hears of every request before the server does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

Hear = Callable[[str, str], None]


@contextmanager
def overheard(url: str, hear: Hear) -> Iterator[str]:
    """The URL of a server that hands requests on to `url`, after `hear(method, path)`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _hand_on(self) -> None:
            hear(self.command, self.path)
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {"content-type": self.headers.get("content-type", "application/json")}
            answer = httpx.request(self.command, url + self.path, content=body, headers=headers, timeout=30)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _hand_on  # noqa: N815 the names that the server asks for

        def log_message(self, *_: object) -> None:
            """Tests report failures themselves."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10)
