"""Child processes that never outlive us, also after a kill -9 of ours, when no code of ours runs any more.

Each child leads a process group of its own, so that Ctrl-C reaches only Morrow, which stops its children in order. A
watchdog, a shell in the same group, reads a pipe from us. At end of file it asks the child to end and, after a grace,
kills it. While the watchdog lives, the group keeps its number, so that a signal to the group reaches no stranger.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

from cli.errors import ChildDied
from contracts.runtime.python_process import find_start_folder

MAX_SHOWN = 300
_KILLED = "it was killed, perhaps for lack of memory, of which the system's log tells"
_TAKEN = "address already in use"
GRACE_SECONDS = 20  # the trainer gives its own child ten of them

# The pipe comes in as 0, a descriptor to inherit as 1, the log as 2. The child inherits the second one as 4, and the
# watchdog does not. A double fork detaches the watchdog, so that the child does not find a child that it never started.
# A child that has ended but is not reaped, as in a container without an init, no longer counts as alive.
_LAUNCH = """
exec 3<&0 4>&1 0</dev/null 1>&2
ask=$1 force=$2 tenths=$3 folder=$4
shift 4
is_alive() {
  kill -0 $$ 2>/dev/null && case "$(cat /proc/$$/stat 2>/dev/null)" in *') Z '*) return 1 ;; esac
}
(
  (
    exec 4>&-
    trap '' TERM INT HUP QUIT
    read -r _ <&3
    kill -s "$ask" -- -$$
    while is_alive && [ "$tenths" -gt 0 ]; do sleep 0.1; tenths=$((tenths - 1)); done
    [ -z "$folder" ] || rm -rf "$folder"
    kill -s "$force" -- -$$
  ) &
)
exec "$@" 3<&-
"""


class Identity(TypedDict):
    """The arguments with which `subprocess` takes on an account; None keeps ours."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


OURSELVES: Identity = {"user": None, "group": None, "extra_groups": None}


def start_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: IO[bytes],
    ask: signal.Signals = signal.SIGTERM,
    force: signal.Signals = signal.SIGKILL,
    grace_seconds: int = GRACE_SECONDS,
    kept: int | None = None,
    folder: Path | None = None,
    cwd: Path | None = None,
    identity: Identity = OURSELVES,
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start a command with a watchdog; returns the process and our end of the watchdog's pipe, which we must close.

    The command inherits the descriptor `kept`. The watchdog asks it to end by one signal, and forces it by another
    after the grace; it also removes `folder`.
    """
    options = [ask.name.removeprefix("SIG"), force.name.removeprefix("SIG"), f"{grace_seconds}0", str(folder or "")]
    pipe, watchdog = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, "sh", *options, *command],
            env=environment,
            cwd=cwd or find_start_folder(),
            stdin=pipe,
            stdout=log if kept is None else kept,
            stderr=log,
            start_new_session=True,
            **identity,
        )
    except BaseException:
        os.close(watchdog)
        raise
    finally:
        os.close(pipe)
    return process, watchdog


@dataclass(frozen=True)
class Child:
    """A running part of the stack. `watchdog` is our end of its pipe, which the system closes if we are killed.

    Its own lines begin in the log at the byte `log_begin`.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    watchdog: int
    log_begin: int = 0

    def check(self) -> None:
        """Raises ChildDied, with the decisive line of its log, if the child has ended by itself.

        That is the last line, or one that says that its port is taken: servers log their shutdown after that. A killed
        child had no time to log why: its last line is of something else.
        """
        if (status := self.process.poll()) is not None:
            if status != -signal.SIGKILL and (taken := find_taken_port(self.log, self.log_begin)) is not None:
                raise ChildDied(
                    f"{self.name} ended with status {status}: {taken}\nAnother program took the port a moment before: "
                    f"run the command again, or choose another port, such as MORROW_PORT=8001.\nIts log is {self.log}"
                )
            last = _KILLED if status == -signal.SIGKILL else last_line(self.log)
            raise ChildDied(f"{self.name} ended with status {status}{last and f': {last}'}\nIts log is {self.log}")

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask the group to end, and kill the rest of it after the grace."""
        self._signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_seconds)
        finally:
            self._signal(signal.SIGKILL)
            self.process.wait()
            os.close(self.watchdog)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the watchdog was killed too, and the group is empty
            os.killpg(self.process.pid, number)


def start_child(name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
    """Start a command in a group of its own, appending what it prints to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        begin = output.tell()
        process, watchdog = start_guarded(command, environment=environment, log=output)
    return Child(name, process, log, watchdog, begin)


def find_taken_port(log: Path, begin: int) -> str | None:
    """The last line from this byte of a log on that says that a port is taken, in short; None if none does."""
    with log.open("rb") as lines:
        lines.seek(begin)
        found = [line for line in lines.read().decode(errors="replace").splitlines() if _TAKEN in line.lower()]
    return found[-1].strip()[:MAX_SHOWN] if found else None


def last_line(log: Path) -> str:
    """The last line of a log in short: for our records the event with its reason, else the line itself."""
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
