"""A Python client that `openapi-python-client` writes from the document: no warning, and every operation answers."""

import importlib
import json
import keyword
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from service.app import make_app
from service.openapi.examples import Example
from tests.integration.api_process import Running
from tests.integration.generators import IS_INSTALLED, MISSING, PYTHON_CLIENT, printed_command, printed_program, run
from tests.integration.played_examples import of_suffix, play
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not (IS_INSTALLED and PYTHON_CLIENT.exists()), reason=MISSING)]

PACKAGE = "morrow_api"
SUFFIX = "_py"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """The document of this Morrow."""
    return make_app(service_settings(DEAD_DATABASE, tmp_path_factory.mktemp("home"))).openapi()


@pytest.fixture(scope="module")
def said(document: Document, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the generator says; its package can be imported until the end of this module."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document))
    words = run(PYTHON_CLIENT, *printed_command("openapi-python-client"), folder=folder)
    sys.path.insert(0, str(folder))
    yield words
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def operations(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation with the path of its document."""
    yield from ((path, one) for path, verbs in document["paths"].items() for one in verbs.values())


def snake(name: str) -> str:
    """A name of the document as one of Python."""
    words = re.sub("(?<=[a-z])([A-Z])", r"_\1", name).lower()
    return f"{words}_" if keyword.iskeyword(words) else words


def module_of(operation: Mapping[str, Any]) -> ModuleType:
    """The module of one operation."""
    (tag,) = operation["tags"]
    return importlib.import_module(f"{PACKAGE}.api.{snake(tag)}.{snake(operation['operationId'])}")


def as_model(kind: Any, value: Any) -> Any:
    """JSON as an instance of a generated type, which may be one of many."""
    for each in (kind, *get_args(kind)):
        if get_origin(each) is list and isinstance(value, list):
            (inner,) = get_args(each)
            return [as_model(inner, one) for one in value]
        if isinstance(value, dict) and hasattr(each, "from_dict"):
            try:
                model = each.from_dict(value)
            except (KeyError, TypeError, ValueError):
                continue
            if model.to_dict().keys() == value.keys():
                return model
    raise AssertionError(f"{kind} holds no {value}")


def as_given(schema: Mapping[str, Any], value: Any, kind: Any) -> Any:
    """The value of a parameter as a program gives it."""
    if isinstance(value, dict):
        return as_model(kind, value)
    return datetime.fromisoformat(value) if "date-time" in json.dumps(schema) else value


def with_moments(value: Any) -> Any:
    """JSON whose moments can be compared, however they are spelled."""
    if isinstance(value, dict):
        return {name: with_moments(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(with_moments, value)]
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.fromisoformat(value)
    return value


async def call(function: Callable[..., Any], operation: Mapping[str, Any], example: Example, client: Any) -> Any:
    """Ask an operation by its function, with the parameters and the body of its example."""
    kinds = get_type_hints(function)
    given = {
        snake(one["name"]): as_given(one["schema"], one["example"], kinds[snake(one["name"])])
        for one in operation.get("parameters", [])
        if "example" in one
    }
    if example.body is not None:
        given["body"] = as_model(kinds["body"], json.loads(example.body))
    return await function(client=client, **given)


@asynccontextmanager
async def generated(client: httpx.AsyncClient) -> AsyncIterator[Any]:
    """The generated client over the connections of another one."""
    made = importlib.import_module(PACKAGE).Client("http://morrow", raise_on_unexpected_status=True)
    yield made.set_async_httpx_client(client)


def test_the_generator_warns_of_nothing_and_every_operation_imports(document: Document, said: str) -> None:
    assert "warning" not in said.lower()
    for _, operation in operations(document):
        module = module_of(operation)
        assert all(callable(getattr(module, name)) for name in ("sync_detailed", "asyncio_detailed"))
    models = importlib.import_module(f"{PACKAGE}.models")
    invented = {name for name in models.__all__ if name not in document["components"]["schemas"]}
    assert not {name for name in invented if re.search("Type[0-9]", name)}  # a model without a name of ours


@pytest.mark.usefixtures("said")
def test_the_program_of_the_page_prints_an_answer(api: Running, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(printed_program("python").replace("http://127.0.0.1:8000", api.url), "generate.md", "exec"), {})  # noqa: S102 as printed
    assert capsys.readouterr().out.startswith(("late ", "on_time "))


@pytest.mark.usefixtures("said")
async def test_every_operation_answers_a_generated_client(
    document: Document, database_url: str, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    ours = json.loads(of_suffix(json.dumps(document), SUFFIX))
    known = {operation["operationId"]: operation for _, operation in operations(ours)}
    asked = set()
    async with serving(service_settings(database_url, tmp_path, mlflow_url=mlflow_url)) as client:

        async def ask(name: str, example: Example) -> Example:
            asked.add(name)
            async with generated(client) as made:
                answer = await call(module_of(known[name]).asyncio_detailed, known[name], example, made)
            assert answer.status_code == example.status, answer.content
            if isinstance(answer.parsed, str):
                assert answer.parsed == answer.content.decode()
                return msgspec.structs.replace(example, answer=answer.parsed)
            found = json.loads(answer.content)
            assert with_moments(answer.parsed.to_dict()) == with_moments(found)
            return msgspec.structs.replace(example, answer=found)

        await play(ask, client, engine, mlflow_url, tmp_path / "published", suffix=SUFFIX)
    assert asked == known.keys()
