"""Faster imports of the large libraries that a process of the trainer keeps until it ends."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import without garbage collection, which finds nothing there and takes a fourth of the time or more.

    What was loaded is never collected. If all was loaded before, nothing is kept from collection.
    """
    num_before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > num_before:
            gc.freeze()
        gc.enable()
