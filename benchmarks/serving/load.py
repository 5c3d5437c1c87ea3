"""Load on a server by `wrk`, or by a small client of our own if wrk is not installed. The report names which.

Both keep a number of connections busy with one request each, in a closed loop. They cycle through prepared requests, so
that no two in a row are alike.
"""

import asyncio
import contextlib
import json
import math
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.errors import LoadFailed

WRK = "wrk"
FALLBACK = "asyncio client"


@dataclass(frozen=True)
class Requests:
    """Requests to one server, all of one verb. `bodies` is empty for GET, else one per path or one for all."""

    url: str
    paths: Sequence[str]
    bodies: Sequence[str] = ()
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        found = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return found | ({"Content-Type": "application/json"} if self.bodies else {})

    @property
    def verb(self) -> str:
        return "POST" if self.bodies else "GET"


@dataclass(frozen=True)
class Load:
    """One load: `num_errors` counts answers that are not 2xx, and connections that broke."""

    num_requests: int
    num_errors: int
    seconds: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.num_requests / self.seconds


def name_tool() -> str:
    """The tool that will make the load."""
    return WRK if shutil.which(WRK) else FALLBACK


def put_load(requests: Requests, *, connections: int, seconds: float, folder: Path) -> Load:
    """Keep this many connections busy for this long; `folder` takes the prepared requests. Raises LoadFailed."""
    if name_tool() == FALLBACK:
        return asyncio.run(ask_all(requests, connections, seconds))
    return _run_wrk(requests, connections, seconds, folder)


def _run_wrk(requests: Requests, connections: int, seconds: float, folder: Path) -> Load:
    paths, bodies = folder / "paths.txt", folder / "bodies.txt"
    paths.write_text("\n".join(requests.paths))
    bodies.write_text("\n".join(requests.bodies))
    headers = [word for name, value in requests.headers.items() for word in ("-H", f"{name}: {value}")]
    with as_file(files("benchmarks.serving").joinpath("load.lua")) as script:
        command = [WRK, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", *headers]
        command += ["-s", str(script), requests.url, "--", str(paths), str(bodies)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode != 0 or not lines:
        raise LoadFailed(f"{WRK} ended with {ended.returncode}: {ended.stderr or ended.stdout}")
    return Load(**json.loads(lines[-1]))


async def ask_all(requests: Requests, connections: int, seconds: float) -> Load:
    """The load of our own client. Raises LoadFailed if nothing is answered in time."""
    began = time.perf_counter()
    done = await asyncio.gather(*(_ask(requests, place, began + seconds) for place in range(connections)))
    took = time.perf_counter() - began
    latencies = sorted(latency for found, _ in done for latency in found)
    if not latencies:
        raise LoadFailed(f"{requests.url} answered nothing within {seconds} s.")
    p99 = latencies[math.ceil(0.99 * len(latencies)) - 1]
    return Load(len(latencies), sum(errors for _, errors in done), took, 1000 * p99)


async def _ask(requests: Requests, place: int, until: float) -> tuple[list[float], int]:
    """Latencies in seconds and number of errors of one connection, which begins with the request at `place`."""
    address = urlsplit(requests.url)
    host, port = address.hostname or "", address.port or 80
    reader, writer = await asyncio.open_connection(host, port)
    latencies: list[float] = []
    num_errors = 0
    try:
        while (began := time.perf_counter()) < until:
            writer.write(_format(requests, place + len(latencies), f"{host}:{port}"))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            latencies.append(time.perf_counter() - began)
            num_errors += not head.split(b" ", 2)[1].startswith(b"2")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):  # every answer was read: how the other side hangs up does not count
            await writer.wait_closed()
    return latencies, num_errors


def _format(requests: Requests, place: int, host: str) -> bytes:
    """A whole HTTP/1.1 request."""
    body = requests.bodies[place % len(requests.bodies)].encode() if requests.bodies else b""
    headers = {"Host": host, **requests.headers, "Content-Length": str(len(body))}
    lines = [f"{requests.verb} {requests.paths[place % len(requests.paths)]} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _length(head: bytes) -> int:
    """The length of the body that follows. Every server measured here sends it."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise LoadFailed("An answer did not tell its length.")
