"""A request of each operation with its real answer, as `/docs` shows them.

`examples.json` is recorded from a running Morrow, and a test sends each request again and compares the answers.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_name("examples.json")
# Where the requests of the file are sent; a page puts its own address there.
ADDRESS = "http://127.0.0.1:8000"


class Example(msgspec.Struct, frozen=True):
    """One request and its answer: `body` is JSON text as it is sent, `answer` the JSON or the text that came back."""

    verb: str
    path: str
    status: int
    answer: Any
    body: str | None = None


@cache
def read_examples() -> dict[str, Example]:
    """The examples by the id of their operation."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Example])


def write_command(example: Example, address: str = ADDRESS) -> str:
    """The request as a `curl` command to paste into a shell."""
    words = ["curl"] if example.verb == "GET" else ["curl", "-X", example.verb]
    words.append(f"'{address}{example.path}'")
    if example.body is None:
        return " ".join(words)
    return f"{' '.join(words)} \\\n  -H 'Content-Type: application/json' \\\n  -d '{example.body}'"
