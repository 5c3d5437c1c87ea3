"""`python -m benchmarks.tasks.counted FILE COMMAND …`: a command of Morrow that counts its statements and requests.

Every second the file is replaced: the SQL statements that SQLAlchemy has sent so far, and the HTTP requests that httpx
has. Processes that the command starts are not counted.
"""

import json
import sys
import threading
import time
from pathlib import Path

import httpx
from sqlalchemy import Engine, event

from contracts.runtime.entry import begin

WRITE_SECONDS = 0.2


class Counts:
    """Statements and requests up to now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"statements": 0, "requests": 0}

    def add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def write(self, file: Path) -> None:
        """Replace the file for ever, a few times a second."""
        partial = file.with_suffix(".partial")
        while True:
            partial.write_text(json.dumps(self._counts))
            partial.replace(file)
            time.sleep(WRITE_SECONDS)


def main(file: Path, arguments: list[str]) -> None:
    """Run a command of `morrow` and count."""
    begin()
    counts = Counts()
    event.listen(Engine, "before_cursor_execute", lambda *_: counts.add("statements"))
    send = httpx.Client.send

    def counted(self: httpx.Client, request: httpx.Request, **options: object) -> httpx.Response:
        counts.add("requests")
        return send(self, request, **options)  # type: ignore[arg-type]  # passed on as given

    httpx.Client.send = counted  # type: ignore[method-assign]  # counts each request of this process
    threading.Thread(target=counts.write, args=(file,), daemon=True).start()
    from cli.main import app

    app(arguments, prog_name="morrow")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
