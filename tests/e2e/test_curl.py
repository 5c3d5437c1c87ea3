"""The walk by `curl` works as printed, and each answer has the members and words that the page shows.

Last digits, times, ids of runs and what the page leaves out (`…`) may differ.
"""

import re
import signal
from pathlib import Path

from cli.local.stack import free_port
from tests.e2e.printed import run_blocks
from tests.e2e.test_up import running

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "curl.md"
SECONDS = 280
PAIR = re.compile(r"```sh\n(?:.*?)```(?:\n\n```(?:json)?\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d{4,}(?:e-\d+)?")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


def shown_answers() -> list[str]:
    """The answer below each shell block of the page, on one line; "" for a block without one."""
    return ["".join(shown.splitlines()) for shown in PAIR.findall(PAGE.read_text("utf-8"))]


def parts_of(shown: str) -> list[str]:
    """The parts between ellipses, times and long numbers: these must stand in the answer, in this order."""
    text = NUMBER.sub("…", TIME.sub("…", shown))
    return [part for part in text.split("…") if part]


def test_every_call_of_the_walk_answers_as_printed(tmp_path: Path) -> None:
    port, home, folder = free_port(), tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    with running(home, port) as (process, _):
        printed = run_blocks(PAGE, port, home, folder, SECONDS)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    answers = shown_answers()
    assert len(answers) == len(printed) > 25
    assert len([shown for shown in answers if shown]) > 20
    for shown, answer in zip(answers, printed, strict=True):
        place, text = 0, answer.replace("\n", "")
        for part in parts_of(shown):
            found = text.find(part, place)
            assert found >= 0, f"the page shows {part!r}, the answer is {answer}"
            place = found + len(part)
