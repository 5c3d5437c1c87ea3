"""The page of the API, from its OpenAPI document."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handbook.schema_tables import kind_of, members
from handbook.tables import code, table
from service.app import make_app
from service.settings import ServiceSettings

_ORDER = ("predict", "predictions", "events", "tasks", "hooks", "livez", "readyz", "metrics")
_NO_DATABASE = "postgresql+psycopg://nobody@127.0.0.1:9/none"  # no query is sent


def api_page() -> str:
    """Every operation with its parameters, body and answers; then every shape in them."""
    settings = ServiceSettings(database_url=_NO_DATABASE, home=Path("/nonexistent"))
    document = make_app(settings).openapi()
    paths = sorted(document["paths"], key=_place)
    operations = [(path, verb, each) for path in paths for verb, each in sorted(document["paths"][path].items())]
    index = [(_link(verb, path), each.get("summary", "")) for path, verb, each in operations]
    sections = "\n".join(_operation(verb, path, each) for path, verb, each in operations)
    shapes = "\n".join(f"### {name}\n\n{_shape(shape)}" for name, shape in document["components"]["schemas"].items())
    return (
        f"# The API\n\n{document['info']['description']}\n\nA running API shows the same at `/docs`, from "
        "`/openapi.json`. Send a key as `Authorization: Bearer KEY`. The refusals are described in "
        "[problem types](problems.md).\n\nThe dashboard is at `/`, with a page for each task at "
        "`/pages/{task}`.\n\n"
        f"{table(('operation', 'purpose'), index)}\n{sections}\n## Shapes\n\n{shapes}"
    )


def _place(path: str) -> tuple[int, str]:
    return _ORDER.index(path.split("/")[1]), path


def _title(verb: str, path: str) -> str:
    return f"{verb.upper()} {path}"


def _link(verb: str, path: str) -> str:
    title = _title(verb, path)
    anchor = "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")
    return f"[{title}](#{anchor})"


def _operation(verb: str, path: str, described: Mapping[str, Any]) -> str:
    parts = [
        f"## {_title(verb, path)}",
        f"{described.get('summary', '')}. {described.get('description') or ''}".strip(),
    ]
    parameters = [
        (code(each["name"]), each["in"], kind_of(each["schema"]), each["description"])
        for each in described.get("parameters", [])
    ]
    if parameters:
        parts.append(table(("parameter", "in", "kind", "meaning"), parameters).rstrip())
    for media, content in described.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Body, `{media}`: {kind_of(content['schema'])}.")
    parts.append(table(("answer", "meaning", "body"), [_answer(*each) for each in described["responses"].items()]))
    return "\n\n".join(parts)


def _answer(status: str, response: Mapping[str, Any]) -> tuple[str, str, str]:
    bodies = [kind_of(content["schema"]) for content in response.get("content", {}).values() if content.get("schema")]
    return code(status), response["description"], ", or ".join(bodies)


def _shape(shape: Mapping[str, Any]) -> str:
    described = f"{shape['description']}\n\n" if "description" in shape else ""
    if shape.get("properties"):
        return described + members(shape)
    return f"{described}{kind_of(shape).capitalize()}.\n"
