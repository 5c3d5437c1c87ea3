"""Child processes that never outlive us.

Each child leads a process group of its own, so that Ctrl-C reaches only Morrow, which stops its children in order.
A watchdog in the same group reads a pipe from us and, at end of file, ends the whole group: hence also after
kill -9, when no code of ours runs any more. It keeps the group's number taken, so that it can be no stranger's.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cli.errors import ChildDied

MAX_SHOWN = 300
GRACE_SECONDS = 20  # the trainer gives its own child ten of them

# The pipe comes in as 0. The watchdog is detached by a double fork, lest the child find one that it never made.
# A child that has ended but is not yet collected (in a container, by nobody) no longer counts as alive.
_LAUNCH = f"""
exec 3<&0 </dev/null
is_alive() {{
  kill -0 $$ 2>/dev/null && case "$(cat /proc/$$/stat 2>/dev/null)" in *') Z '*) return 1 ;; esac
}}
(
  (
    trap '' TERM INT HUP
    read -r _ <&3
    kill -s TERM -- -$$
    tenths=0
    while is_alive && [ $tenths -lt {GRACE_SECONDS}0 ]; do sleep 0.1; tenths=$((tenths + 1)); done
    kill -s KILL -- -$$
  ) &
)
exec "$@" 3<&-
"""


@dataclass(frozen=True)
class Child:
    """A running part of the stack; `watchdog` is our end of the pipe, closed by the system if we are killed."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    watchdog: int

    def check(self) -> None:
        """Raises ChildDied, with its last words, where the child has ended."""
        if (status := self.process.poll()) is not None:
            said = find_last_words(self.log)
            raise ChildDied(f"{self.name} ended with status {status}{said and f': {said}'}\nIts log is {self.log}")

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask the group to end, and kill what is left of it after the grace."""
        self._signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_seconds)
        finally:
            self._signal(signal.SIGKILL)
            self.process.wait()
            os.close(self.watchdog)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # where somebody killed the watchdog and nothing of the group is left
            os.killpg(self.process.pid, number)


def start_child(name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
    """Start a command in a group of its own, appending what it prints to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pipe, watchdog = os.pipe()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCH, "sh", *command],
                env=environment,
                stdin=pipe,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except BaseException:
        os.close(watchdog)
        raise
    finally:
        os.close(pipe)
    return Child(name, process, log, watchdog)


def find_last_words(log: Path) -> str:
    """The last line of a log in short: of one of ours the event and its reason, of another, or a traceback, itself."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    line = lines[-1] if lines else ""
    try:
        record = json.loads(line)
    except ValueError:
        return line[:MAX_SHOWN]
    if not isinstance(record, dict) or "event" not in record:
        return line[:MAX_SHOWN]
    why = record.get("reason") or record.get("error") or str(record.get("exception", "")).rpartition("\n")[2]
    return f"{record['event']}{why and f': {why}'}"[:MAX_SHOWN]
