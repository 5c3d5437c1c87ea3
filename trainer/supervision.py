"""One training process under the scheduler's eye: started, held to its time limit, stopped, and judged by its exit."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import structlog

from contracts.cycles import Cycle
from trainer.child import ORPHANED, STOPPED, STORE_AWAY, write_order
from trainer.due import STOPPED as STOPPED_REASON
from trainer.due import STORE_UNREACHABLE
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

_GRACE_SECONDS = 10.0


@dataclass
class Child:
    """A started process. `deadline` by the monotonic clock; `reason` is why it was ended from outside, where it was."""

    process: "subprocess.Popen[bytes]"
    cycle: Cycle | None
    deadline: float
    reason: str | None = None

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


def start(settings: TrainerSettings, cycle: Cycle | None) -> Child:
    """Start a process for this cycle, or a sweep, in a session of its own: a terminal's Ctrl-C is ours to pass on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer.child"],
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        start_new_session=True,
        # Threads that spin while they wait make a fit several times slower where other processes want the cores.
        env={"OMP_WAIT_POLICY": "passive", **os.environ},
    )
    assert process.stdin is not None
    process.stdin.write(write_order(settings, cycle))
    process.stdin.flush()
    return Child(process, cycle, time.monotonic() + settings.cycle_limit_seconds)


def kill_if_over(child: Child, settings: TrainerSettings) -> None:
    """End a process that has had its time; its cycle fails with that reason."""
    if child.is_running and time.monotonic() > child.deadline:
        child.reason = f"The time limit of {settings.cycle_limit_seconds:g} s was reached."
        log.error("child.killed", reason=child.reason)
        _kill(child)


def stop(child: Child) -> None:
    """Ask a process to end its cycle and run, and kill it where that takes too long."""
    child.reason = STOPPED_REASON
    if child.is_running:
        child.process.terminate()
    try:
        child.process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(child)


def close(child: Child) -> str | None:
    """After its end: free the pipe; returns why its cycle failed, None after a clean exit."""
    code = child.process.wait()
    if child.process.stdin is not None:
        child.process.stdin.close()
    if child.reason is not None:
        return child.reason
    if code == 0:
        return None
    if code in (STOPPED, ORPHANED):
        return STOPPED_REASON
    if code == STORE_AWAY:
        return STORE_UNREACHABLE
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"The training process {how}."


def _kill(child: Child) -> None:
    # Its session holds nothing but what it started.
    os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait()
