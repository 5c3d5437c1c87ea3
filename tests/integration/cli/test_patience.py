"""Commands for files of rows go on after a pause that the API asks for; a proxy before the real API brings faults."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.client.api import PATIENCE_SECONDS
from cli.main import app
from tests.integration.api_process import Running, define_flights, running

OVERLOADED = {"type": "/problems/overloaded", "title": "More is asked than can be answered", "status": 503}


@dataclass(frozen=True)
class Fault:
    """What the proxy answers instead; nothing at all without a status."""

    status: int | None = None
    problem: dict[str, Any] | None = None
    retry_after: str | None = None


@dataclass
class Proxy:
    """Answers POSTs by `faults` as long as there are any, and hands everything else on."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    num_faults: int = 0


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    define_flights(engine)
    (tmp_path / "home").mkdir()
    with running(database_url, tmp_path / "home") as api:
        yield api


@contextmanager
def proxy_before(target: str, faults: list[Fault]) -> Iterator[Proxy]:
    class Handler(BaseHTTPRequestHandler):
        def _hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.command == "POST" and "/imports" not in self.path and proxy.faults:
                proxy.num_faults += 1
                self._fail(proxy.faults.pop(0))
                return
            kinds = {"content-type": self.headers["content-type"]} if self.headers["content-type"] else {}
            found = httpx.request(self.command, f"{target}{self.path}", content=body, headers=kinds)
            self._answer(found.status_code, found.content, {"content-type": found.headers["content-type"]})

        do_GET = do_POST = _hand_on  # noqa: N815  # names of the standard library

        def _fail(self, fault: Fault) -> None:
            if fault.status is None:
                self.close_connection = True
                return
            kind = "text/html" if fault.problem is None else "application/problem+json"
            headers = {"content-type": kind} | ({} if fault.retry_after is None else {"retry-after": fault.retry_after})
            self._answer(fault.status, json.dumps(fault.problem).encode(), headers)

        def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}", faults)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def write_rows(folder: Path) -> Path:
    file = folder / "rows.csv"
    rows = (f"e{k},2026-01-30T12:00:00Z,{k},UA,late\n" for k in range(2500))
    file.write_text("event_id,at,distance,carrier,outcome\n" + "".join(rows))
    return file


def predict(proxy: Proxy, folder: Path) -> Result:
    file, out = write_rows(folder), folder / "answers.csv"
    return CliRunner().invoke(
        app, ["predict", "flights", str(file), "--out", str(out), "--drop", "outcome", "--url", proxy.url]
    )


@pytest.mark.parametrize(
    "fault",
    [
        Fault(503, OVERLOADED, "1"),
        Fault(429, {"type": "/problems/throttled", "title": "The key has sent too many requests"}, "1"),
        Fault(502),
        Fault(503, retry_after="Mon, 30 Nov 2026 12:00:00 GMT"),
        Fault(),
    ],
    ids=["overloaded", "throttled", "no API behind a proxy", "a proxy's date", "a lost connection"],
)
def test_rows_are_asked_and_sent_again_after_what_passes(api: Running, tmp_path: Path, fault: Fault) -> None:
    with proxy_before(api.url, [fault, fault]) as proxy:
        done = predict(proxy, tmp_path)
        assert (done.exit_code, proxy.num_faults) == (0, 2), done.output
        assert len((tmp_path / "answers.csv").read_text().splitlines()) == 2501
        proxy.faults = [fault, fault]
        done = CliRunner().invoke(
            app, ["events", "import", "flights", str(tmp_path / "rows.csv"), "--url", proxy.url, "--json"]
        )
        assert (done.exit_code, proxy.num_faults) == (0, 4), done.output
        assert json.loads(done.stdout)["created"] == 2500


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, {"type": "/problems/quota-used", "title": "Used"}, str(int(2 * PATIENCE_SECONDS))),
        Fault(500, {"type": "/problems/internal", "title": "Morrow made a mistake"}),
        Fault(403, {"type": "/problems/forbidden", "title": "The key does not allow this"}),
    ],
    ids=["a pause beyond patience", "a mistake of the API", "a key without the scope"],
)
def test_what_does_not_pass_is_not_asked_again(api: Running, tmp_path: Path, fault: Fault) -> None:
    with proxy_before(api.url, [fault, fault]) as proxy:
        done = predict(proxy, tmp_path)
        assert (done.exit_code, proxy.num_faults) == (1, 1), done.output
        assert fault.problem is not None
        assert fault.problem["title"] in done.output
        proxy.faults = []
        assert predict(proxy, tmp_path).exit_code == 0


def test_an_import_that_fails_leaves_the_pauses_of_its_other_requests(api: Running, tmp_path: Path) -> None:
    pause = Fault(503, OVERLOADED, str(int(PATIENCE_SECONDS - 1)))
    with proxy_before(api.url, [pause, Fault(403, {"title": "The key does not allow this"}), pause]) as proxy:
        file = write_rows(tmp_path)
        done = CliRunner().invoke(app, ["events", "import", "flights", str(file), "--url", proxy.url])
        assert done.exit_code == 1
        assert "The key does not allow this" in done.output
