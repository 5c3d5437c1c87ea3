"""The peak memory of this process and all its descendants, which the demo reports.

It sums proportional set sizes, which count a page that several processes share once. If the system does not report
them, it sums resident sizes, which count such a page once for each process.
"""

import os
import threading
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 1.0


class PeakMemory:
    """Samples the memory in a thread while the block runs, and keeps the peak in `peak_bytes`."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        root = psutil.Process(os.getpid())
        while not self._ended.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(measure_memory, [root, *root.children(recursive=True)])))


def measure_memory(process: psutil.Process) -> int:
    """Bytes of one process, with its share of the pages that it shares; 0 if it has ended."""
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", memory.rss))
    except psutil.Error:
        return 0
