"""The OpenAPI document says what every operation takes, answers and refuses, and which key it needs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from service.app import make_app
from service.openapi.document import OPERATIONS
from service.settings import ServiceSettings

HEALTH = {"/livez", "/readyz"}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("home")
    return make_app(ServiceSettings(database_url="postgresql+psycopg://nobody@127.0.0.1:9/x", home=home)).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield verb, path, operation


def references(value: Any) -> Iterator[str]:
    """Every component that is spoken of."""
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == "$ref")
        yield from (found for inner in value.values() for found in references(inner))
    elif isinstance(value, list):
        yield from (found for inner in value for found in references(inner))


def titles(value: Any) -> Iterator[str]:
    """Every title in the document; a property may be called so too."""
    if isinstance(value, dict):
        yield from (title for name, title in value.items() if name == "title" and isinstance(title, str))
        yield from (found for inner in value.values() for found in titles(inner))
    elif isinstance(value, list):
        yield from (found for inner in value for found in titles(inner))


def test_every_operation_has_an_id_that_names_a_function_of_a_client(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for *_, operation in operations(document)]
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)*", one) for one in ids)
    assert len({*ids}) == len(ids)


def test_every_component_has_a_title_of_its_own_and_nothing_else_has_one(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    assert {name: shape["title"] for name, shape in components.items()} == {name: name for name in components}
    assert sorted(titles(document)) == sorted([document["info"]["title"], *components])


def test_what_an_answer_may_leave_out_is_not_required(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    assert {"task", "at", "expected_error"} <= {*components["Answer"]["required"]}
    assert not {"mean", "probabilities", "interval", "rate"} & {*components["Answer"]["required"]}
    assert {*components["Problem"]["required"]} == {"type", "title", "status", "detail"}
    for name in ("Cycle", "Release", "TaskStatus", "Model"):
        assert {*components[name]["required"]} == {*components[name]["properties"]}, name


def test_the_table_of_operations_is_that_of_the_routes(document: dict[str, Any]) -> None:
    assert {(verb, path) for verb, path, _ in operations(document)} == {*OPERATIONS}


def test_every_success_and_every_body_has_a_shape(document: dict[str, Any]) -> None:
    for verb, path, operation in operations(document):
        successes = {status: one for status, one in operation["responses"].items() if status < "300"}
        assert successes, (verb, path)
        for response in successes.values():
            assert path == "/metrics" or response["content"]["application/json"]["schema"], (verb, path)
        assert ("requestBody" in operation) == (verb in ("post", "put"))
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content["schema"], (verb, path)


def test_every_success_is_told_in_words_of_its_own(document: dict[str, Any]) -> None:
    told = [one["description"] for *_, operation in operations(document) for one in operation["responses"].values()]
    assert all(told)
    assert "Successful Response" not in told  # what the framework says where nobody says anything


def test_every_parameter_is_told_in_words(document: dict[str, Any]) -> None:
    told = [one.get("description") for *_, operation in operations(document) for one in operation.get("parameters", ())]
    assert len(told) > 20
    assert all(told)


def test_every_refusal_is_a_problem_and_says_when_to_come_back(document: dict[str, Any]) -> None:
    for verb, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400" and path not in HEALTH:
                schema = response["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, (verb, path, status)
                assert ("Retry-After" in response.get("headers", {})) == (status in ("429", "503"))


def test_every_operation_has_an_example_that_fits_its_schemas(document: dict[str, Any]) -> None:
    def check(shape: dict[str, Any], place: tuple[str, ...]) -> None:
        known = {"components": document["components"], "allOf": [shape["schema"]]}
        for fault in jsonschema_rs.Draft202012Validator(known, validate_formats=True).iter_errors(shape["example"]):
            pytest.fail(f"{place}: {fault}")

    for verb, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            if "example" in parameter:
                check(parameter, (verb, path, parameter["name"]))
            assert "example" in parameter or not parameter.get("required"), (verb, path, parameter["name"])
        body = operation.get("requestBody", {"content": {}, "required": False})
        bodies = [*body["content"].values()]
        answers = [one for answer in operation["responses"].values() for one in answer.get("content", {}).values()]
        assert all("example" in one for one in bodies) or not body["required"], (verb, path)
        shown = [answer for answer in answers if "example" in answer]
        assert len(shown) == 1, (verb, path)
        for one in [*bodies, *shown]:
            if "example" in one:
                check(one, (verb, path))


def test_every_answer_names_its_request(document: dict[str, Any]) -> None:
    for verb, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            assert "X-Request-Id" in answer["headers"], (verb, path, status)


def test_only_health_needs_no_key(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        assert (operation["security"] == []) == (path in HEALTH)
        assert ("401" in operation["responses"]) == (path not in HEALTH)


def test_every_component_is_there_and_spoken_of(document: dict[str, Any]) -> None:
    kinds = ("schemas", "headers")
    known = {f"#/components/{kind}/{name}" for kind in kinds for name in document["components"][kind]}
    assert {*references(document)} == known
