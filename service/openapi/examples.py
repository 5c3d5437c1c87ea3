"""A request of each operation with its real answer, as `/docs` and `/openapi.json` show them.

`examples.json` is recorded from a running Morrow, and a test sends each request again and compares the answers.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from service.openapi.json_schema import Shape
from service.web.bodies import JSON

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

    def parameters(self, template: str) -> dict[str, str]:
        """The texts of its parameters by name; `template` is the path of its operation, such as `/tasks/{task}`."""
        url = urlsplit(self.path)
        parts = zip(template.split("/"), url.path.split("/"), strict=True)
        in_path = {name[1:-1]: unquote(value) for name, value in parts if name.startswith("{")}
        return in_path | dict(parse_qsl(url.query))


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


def show_example(operation: Shape, template: str, example: Example) -> None:
    """Put an example into an operation of the document: its parameters, its body and its answer."""
    parameters, given = operation.get("parameters", []), example.parameters(template)
    if parameters:
        others = {name: given[name] for name in given.keys() - {each["name"] for each in parameters}}
        operation["parameters"] = [_show_parameter(each, given, others) for each in parameters]
    if example.body is not None:
        content = operation["requestBody"]["content"]
        content[JSON] = {**content[JSON], "example": msgspec.json.decode(example.body)}
    answer = operation["responses"][str(example.status)].get("content", {})
    for media_type, described in answer.items():
        answer[media_type] = {**described, "example": example.answer}


def _show_parameter(parameter: Shape, given: Mapping[str, str], others: Mapping[str, str]) -> Shape:
    """The parameter with its example, if the request gives one; features are `others`, each by its own name."""
    schema, name = parameter["schema"], parameter["name"]
    if parameter.get("explode"):
        return {**parameter, "example": {each: _read(text) for each, text in sorted(others.items())}}
    if name not in given:
        return parameter
    kinds = {schema.get("type"), *(each.get("type") for each in schema.get("anyOf", ()))}
    is_text = not kinds & {"integer", "number", "boolean"}
    return {**parameter, "example": given[name] if is_text else _read(given[name])}


def _read(text: str) -> Any:
    """The number or truth that a text of a query shows, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
