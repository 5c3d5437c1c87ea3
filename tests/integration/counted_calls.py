"""How often work is done: calls of a function and opened files, counted from outside the code that does it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


@contextmanager
def counting_calls(*functions: Callable[..., Any]) -> Iterator[Counter[CodeType]]:
    """How often this thread enters each of these functions, by its code."""
    codes, found = {function.__code__ for function in functions}, Counter[CodeType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            found[frame.f_code] += 1

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@contextmanager
def counting_opened_files(folder: Path) -> Iterator[Counter[Path]]:
    """How often each file below a folder is opened. An audit hook cannot be removed, so the end silences it."""
    found, is_counting = Counter[Path](), True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if is_counting and event == "open" and isinstance(arguments[0], str):
            file = Path(arguments[0])
            if file.is_relative_to(folder):
                found[file.relative_to(folder)] += 1

    sys.addaudithook(note)
    try:
        yield found
    finally:
        is_counting = False
