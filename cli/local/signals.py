"""How signals end a command: each one that asks it to stop acts like Ctrl-C, and none interrupts the stopping."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does: by KeyboardInterrupt.

    SIGINT gets the same handler, because a shell starts background commands with SIGINT ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def ignored_signals() -> Iterator[None]:
    """Ignore these signals during the stopping, which has time limits of its own."""
    former = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
