"""MLflow's REST API and its artefact proxy, asked without mlflow: the scheduler does not load it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from contracts.artifact_proxy import proxy_address
from contracts.errors import ArtefactRefused, RegistryRefusal
from contracts.runtime.http_clients import mlflow_options
from trainer.tracking.errors import Missing, RegistryUnreachable

_SECONDS = 10.0
_UPLOAD_SECONDS = _DELETE_SECONDS = 60.0
_PAGE_SIZE = 1000
_MAX_REASON = 200
_MISSING = "RESOURCE_DOES_NOT_EXIST"
_REFUSALS = (400, 401, 403, 404, 409, 422)


def open_client(mlflow_url: str) -> httpx.Client:
    """A client for one server. Raises InvalidInput if a proxy or certificates cannot be used."""
    return httpx.Client(timeout=_SECONDS, **mlflow_options(mlflow_url))


def ask(client: httpx.Client, method: str, path: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """MLflow's JSON answer; None if there is no such thing. Raises RegistryRefusal, Unavailable."""
    given: dict[str, Any] = {"params": parameters} if method == "GET" else {"json": parameters}
    try:
        response = client.request(method, f"/api/2.0/mlflow/{path}", **given)
        found = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise RegistryUnreachable from error
    if response.status_code == httpx.codes.OK and isinstance(found, dict):
        return found
    if isinstance(found, dict) and found.get("error_code") == _MISSING:
        return None
    why = str(found.get("message", "")) if isinstance(found, dict) else ""
    kind = RegistryRefusal if response.status_code in _REFUSALS else RegistryUnreachable
    raise kind(f"MLflow answers {path} with status {response.status_code}. {why[:_MAX_REASON]}".strip())


def ask_pages(
    client: httpx.Client, method: str, path: str, key: str, parameters: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Everything under this key, over all pages of an answer. Raises Unavailable."""
    token = ""
    while True:
        page = {**parameters, "max_results": _PAGE_SIZE} | ({"page_token": token} if token else {})
        found = ask(client, method, path, page) or {}
        yield from found.get(key, [])
        token = found.get("next_page_token", "")
        if not token:
            return


def find_files(client: httpx.Client, model: str, version: str) -> str:
    """The address of the files of a version. Raises Missing, Unavailable."""
    with _unreachable_if_refused():
        found = ask(client, "GET", "model-versions/get-download-uri", {"name": model, "version": version})
    if found is None:
        raise Missing(f"MLflow has no version {version} of model {model!r}.")
    return str(found.get("artifact_uri", ""))


def set_alias(client: httpx.Client, model: str, alias: str, version: str) -> None:
    """Let the alias name this version. Raises Missing, Unavailable."""
    with _unreachable_if_refused():
        found = ask(client, "POST", "registered-models/alias", {"name": model, "alias": alias, "version": version})
    if found is None:
        raise Missing(f"MLflow has no version {version} of model {model!r}.")


@contextmanager
def _unreachable_if_refused() -> Iterator[None]:
    """For a cycle, a refusal is an outage that somebody must end."""
    try:
        yield
    except RegistryRefusal as error:
        raise RegistryUnreachable(str(error)) from error


def download_file(client: httpx.Client, path: str, target: Path) -> None:
    """Copy one file of the artefact store. Raises Unavailable, and ArtefactRefused if there is none."""
    try:
        with client.stream("GET", proxy_address(path)) as answer, target.open("wb") as file:
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise ArtefactRefused(f"MLflow has no file {target.name} of this version.")
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
    except httpx.HTTPError as error:
        raise RegistryUnreachable from error


def upload_folder(client: httpx.Client, path: str, folder: Path) -> None:
    """Copy all files of a folder below this path of the artefact store. Raises Unavailable."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            target = proxy_address(f"{path}/{file.relative_to(folder).as_posix()}")
            try:
                client.put(target, content=file.read_bytes(), timeout=_UPLOAD_SECONDS).raise_for_status()
            except httpx.HTTPError as error:
                raise RegistryUnreachable from error


def delete_folder(client: httpx.Client, path: str) -> None:
    """Delete a folder of the artefact store, which may be gone already. Raises Unavailable."""
    try:
        response = client.delete(proxy_address(path), timeout=_DELETE_SECONDS)
    except httpx.HTTPError as error:
        raise RegistryUnreachable from error
    if response.is_error and response.status_code != httpx.codes.NOT_FOUND:
        raise RegistryUnreachable(f"MLflow answers the deletion of files with status {response.status_code}.")
