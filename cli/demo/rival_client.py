"""The client of `cli.demo.rival_worker`: one child process that fits rivals and is controlled by lines of JSON."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.errors import RivalsFailed
from cli.local.stack import Addresses, child_environment
from contracts.runtime.python_process import find_start_folder, python_command

STOP_SECONDS = 10.0

Figures = dict[str, dict[str, float]]


class RivalProcess:
    """Starts loading torch on entry, in the background; ends on exit, or by itself once the demo has ended."""

    def __init__(self, addresses: Addresses, home: Path) -> None:
        own = {"MORROW_HOME": str(home), "MORROW_DATABASE_URL": addresses.database}
        self._environment = child_environment(home, own)
        self._log = home / "logs" / "rivals.log"

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                python_command("-m", "cli.demo.rival_worker"),
                cwd=find_start_folder(),
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C stops the demo, which then closes this process's input
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # a request that the ended process never read
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def score(self, task: str, cutoff: int, known_by: int) -> Figures:
        """Method -> {"log_loss", "error"} on the window that begins at `cutoff` (microseconds). Raises RivalsFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"task": task, "cutoff": cutoff, "known_by": known_by})
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            raise RivalsFailed(f"The process that fits the rivals ended; see {self._log}.")
        figures: Figures = json.loads(line)
        return figures
