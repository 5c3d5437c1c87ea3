"""Types that `openapi-typescript` writes from the document: a program with every operation compiles and is answered."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from cli.local.stack import free_port
from service.app import make_app
from service.openapi.examples import Example, read_examples
from tests.e2e.processes import process
from tests.integration.api_process import Running
from tests.integration.generators import (
    GENERATOR,
    IS_INSTALLED,
    MISSING_NODE,
    NODE,
    NODE_MODULES,
    printed_command,
    printed_program,
    run,
)
from tests.integration.played_examples import of_suffix, play
from tests.integration.service_app import DEAD_DATABASE, service_settings
from tests.servers import wait_until_healthy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(NODE is None or not (IS_INSTALLED and NODE_MODULES.exists()), reason=MISSING_NODE),
]

COMPILER_OPTIONS = {
    "strict": True,
    "noUnusedLocals": False,
    "module": "esnext",
    "moduleResolution": "bundler",
    "target": "es2022",
    "lib": ["es2022", "dom", "dom.iterable"],
    "types": [],
}
# Follows the page's way to make a client.
PROGRAM = """
const name = process.argv[3] ?? "";
const calls: Record<string, () => Promise<{ response: Response; data?: unknown; error?: unknown }>> = {
%s
};
const { response, data, error } = await calls[name]!();
console.log(JSON.stringify({ status: response.status, answer: data ?? error }));
"""
SUFFIX = "_ts"
ADDRESS = '"http://127.0.0.1:8000"'


def write_call(name: str, path: str, verb: str, operation: dict[str, Any], example: Example) -> str:
    """An operation with the parameters and the body of its example, as a program calls it."""
    params: dict[str, dict[str, Any]] = {}
    for one in operation.get("parameters", []):
        if "example" in one:
            params.setdefault(one["in"], {})[one["name"]] = one["example"]
    options = {"params": params} | ({} if example.body is None else {"body": json.loads(example.body)})
    more = ', parseAs: "text"' if isinstance(example.answer, str) else ""
    return f'  {name}: () => client.{verb.upper()}("{path}", {json.dumps(options)[:-1]}{more}}}),'


def write_answer(name: str, path: str, verb: str, media_type: str, example: Example) -> str:
    """The recorded answer as a value of its type."""
    kind = f'paths["{path}"]["{verb}"]["responses"][{example.status}]["content"]["{media_type}"]'
    return f"export const {name}: {kind} = {json.dumps(example.answer)};"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the types, and a compiled program that asks each operation by its name."""
    folder = tmp_path_factory.mktemp("typescript")
    document = make_app(service_settings(DEAD_DATABASE, folder / "home")).openapi()
    (folder / "node_modules").symlink_to(NODE_MODULES)
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "package.json").write_text(json.dumps({"type": "module"}))
    said = run(GENERATOR, *printed_command("openapi-typescript"), folder=folder)
    assert "warn" not in said.lower()
    page = printed_program("ts").replace(ADDRESS, "process.argv[2]")
    (folder / "page.ts").write_text(page)
    calls, values = [], []
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            name = operation["operationId"]
            example = read_examples()[name]
            (media_type,) = operation["responses"][str(example.status)]["content"]
            calls.append(write_call(name, path, verb, operation, example))
            values.append(write_answer(name, path, verb, media_type, example))
    made = page[: page.index("const { data")]
    (folder / "program.ts").write_text(made + PROGRAM % of_suffix("\n".join(calls), SUFFIX))
    (folder / "answers.ts").write_text("\n".join(['import type { paths } from "./schema";', *values]))
    (folder / "node.d.ts").write_text("declare const process: { argv: string[] };")
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER_OPTIONS}))
    run(NODE_MODULES / ".bin" / "tsc", folder=folder)
    return folder


@pytest.fixture
def url(database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[str]:
    """Where a process of the API answers, which knows no task."""
    port = free_port()
    environment = {
        **os.environ,
        "MORROW_HOME": str(tmp_path / "home"),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": mlflow_url,
        "MORROW_PORT": str(port),
        "MORROW_POLL_SECONDS": "0.1",
    }
    with process("service", environment, tmp_path / "log") as started:
        wait_until_healthy(f"http://127.0.0.1:{port}/livez", started, seconds=60)
        yield f"http://127.0.0.1:{port}"


async def test_every_operation_answers_a_program_of_generated_types(
    program: Path, url: str, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    async def ask(name: str, example: Example) -> Example:
        assert NODE is not None
        found = json.loads(run(NODE, "program.js", url, name, folder=program))
        assert found["status"] == example.status, found
        return msgspec.structs.replace(example, answer=found["answer"])

    async with httpx.AsyncClient(base_url=url) as client:
        answered = await play(ask, client, engine, mlflow_url, tmp_path / "published", suffix=SUFFIX)
    assert answered.keys() == read_examples().keys()


def test_the_program_of_the_page_prints_an_answer(program: Path, api: Running) -> None:
    assert NODE is not None
    assert run(NODE, "page.js", api.url, folder=program).strip() in ("late", "on_time")
