"""What MLflow holds of a task is removed or renamed over REST: the scheduler does not load mlflow.

Every step finds its own traces after a kill and goes on. A model or experiment that others use too keeps what is
theirs: only versions and runs with our tags are deleted. Before a renaming, model and experiment get the task's id as a
tag. So a later attempt, even one with another new name, knows which of them are the task's.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from contracts.artifact_proxy import proxied_path, proxy_address
from contracts.errors import ArtefactRefused, RegistryRefusal, Unavailable
from contracts.failure import REGISTRY_UNREACHABLE
from contracts.runtime.http_clients import mlflow_options
from store.releases import ALIAS
from trainer.tracking.tags import CYCLE_TAG, MANIFEST_TAG, TASK_TAG

_SECONDS = 10.0
_DELETE_SECONDS = 60.0
_PAGE_SIZE = 1000
_MAX_REASON = 200
_MISSING = "RESOURCE_DOES_NOT_EXIST"
_REFUSALS = (400, 401, 403, 404, 409, 422)


def remove_task(mlflow_url: str, names: Sequence[str], task_id: int) -> None:
    """Delete a task's registered model and its experiment, with their files. Raises Unavailable.

    They have the first name, or, if a renaming was under way, one of the others and the tag of the task.

    MLflow only marks an experiment as deleted, and keeps its name. So it is given another one first, and `mlflow gc`
    removes the rest.
    """
    with httpx.Client(timeout=_SECONDS, **mlflow_options(mlflow_url)) as client:
        for name in names:
            is_ours = name == names[0]
            if is_ours or _is_of(_find_model(client, name), task_id):
                _remove_model(client, name)
            if is_ours or _is_of(_find_experiment(client, name), task_id):
                _remove_experiment(client, name, f"{name} (deleted task {task_id})")


def rename_task(mlflow_url: str, names: Sequence[str], new_name: str, task_id: int) -> None:
    """Rename a task's registered model and its experiment. Raises RegistryRefusal, Unavailable.

    They have the first of `names`, or, if an earlier renaming was under way, one of the others and the tag of the task.
    Nothing is renamed if MLflow has the new name for something else.
    """
    with httpx.Client(timeout=_SECONDS, **mlflow_options(mlflow_url)) as client:
        model = _name_to_leave(client, _find_model, names, new_name, task_id)
        experiment = _name_to_leave(client, _find_experiment, names, new_name, task_id)
        if model is not None:
            tag = {"key": TASK_TAG, "value": str(task_id)}
            _ask(client, "POST", "registered-models/set-tag", {"name": model, **tag})
            _ask(client, "POST", "registered-models/rename", {"name": model, "new_name": new_name})
        if experiment is not None and (found := _find_experiment(client, experiment)) is not None:
            number = str(found["experiment_id"])
            tag = {"key": TASK_TAG, "value": str(task_id)}
            _ask(client, "POST", "experiments/set-experiment-tag", {"experiment_id": number, **tag})
            _ask(client, "POST", "experiments/update", {"experiment_id": number, "new_name": new_name})


def _name_to_leave(
    client: httpx.Client,
    find: Callable[[httpx.Client, str], dict[str, Any] | None],
    names: Sequence[str],
    new_name: str,
    task_id: int,
) -> str | None:
    """The name of the task's model or experiment; None if it has none, or has the new name.

    Raises RegistryRefusal if MLflow has something else under the new name.
    """
    present = find(client, new_name)
    if present is not None and (new_name == names[0] or _is_of(present, task_id)):
        return None
    own = None
    for name in names:
        found = None if name == new_name else find(client, name)
        is_active = found is not None and found.get("lifecycle_stage", "active") == "active"
        if is_active and (name == names[0] or _is_of(found, task_id)):
            own = name
            break
    if own is not None and present is not None:
        kind = "an experiment" if "experiment_id" in present else "a registered model"
        deleted = "" if present.get("lifecycle_stage", "active") == "active" else " in its bin"
        raise RegistryRefusal(f"MLflow has {kind} named {new_name!r}{deleted}, which is not the task's.")
    return own


def _is_of(found: dict[str, Any] | None, task_id: int) -> bool:
    """Whether a model or an experiment has the tag of this task."""
    tags = [] if found is None else found.get("tags", [])
    return any(tag.get("key") == TASK_TAG and tag.get("value") == str(task_id) for tag in tags)


def _find_model(client: httpx.Client, name: str) -> dict[str, Any] | None:
    found = _ask(client, "GET", "registered-models/get", {"name": name})
    return None if found is None else found["registered_model"]


def _remove_model(client: httpx.Client, name: str) -> None:
    versions = list(_pages(client, "GET", "model-versions/search", "model_versions", {"filter": f"name='{name}'"}))
    # A later task of this name must not find it, even if it names somebody else's version.
    _ask(client, "DELETE", "registered-models/alias", {"name": name, "alias": ALIAS})
    ours = [version for version in versions if _has_tag(version.get("tags", []), MANIFEST_TAG)]
    if len(ours) == len(versions):
        _ask(client, "DELETE", "registered-models/delete", {"name": name})
        return
    for version in ours:
        _ask(client, "DELETE", "model-versions/delete", {"name": name, "version": str(version["version"])})


def _remove_experiment(client: httpx.Client, name: str, former_name: str) -> None:
    experiment = _find_experiment(client, name)
    if experiment is not None and experiment["lifecycle_stage"] == "active":
        number = str(experiment["experiment_id"])
        body = {"experiment_ids": [number], "run_view_type": "ACTIVE_ONLY"}
        runs = list(_pages(client, "POST", "runs/search", "runs", body))
        ours = [run for run in runs if _has_tag(run.get("data", {}).get("tags", []), CYCLE_TAG)]
        if len(ours) < len(runs):
            for run in ours:
                _ask(client, "POST", "runs/delete", {"run_id": run["info"]["run_id"]})
            return
        _ask(client, "POST", "experiments/update", {"experiment_id": number, "new_name": former_name})
    former = _find_experiment(client, former_name)
    if former is not None:
        _delete_files(client, str(former.get("artifact_location")))
        if former["lifecycle_stage"] == "active":
            _ask(client, "POST", "experiments/delete", {"experiment_id": str(former["experiment_id"])})


def _find_experiment(client: httpx.Client, name: str) -> dict[str, Any] | None:
    found = _ask(client, "GET", "experiments/get-by-name", {"experiment_name": name})
    return None if found is None else found["experiment"]


def _delete_files(client: httpx.Client, location: str) -> None:
    """Delete a folder of the artefact store, if MLflow itself serves that store."""
    try:
        path = proxied_path(location)
    except ArtefactRefused:
        return
    try:
        response = client.delete(proxy_address(path), timeout=_DELETE_SECONDS)
    except httpx.HTTPError as error:
        raise Unavailable(REGISTRY_UNREACHABLE.reason) from error
    if response.is_error and response.status_code != httpx.codes.NOT_FOUND:
        raise Unavailable(f"MLflow answers the deletion of files with status {response.status_code}.")


def _pages(
    client: httpx.Client, method: str, path: str, key: str, parameters: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    token = ""
    while True:
        page = {**parameters, "max_results": _PAGE_SIZE} | ({"page_token": token} if token else {})
        found = _ask(client, method, path, page) or {}
        yield from found.get(key, [])
        token = found.get("next_page_token", "")
        if not token:
            return


def _ask(client: httpx.Client, method: str, path: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """MLflow's JSON answer; None if there is no such thing. Raises Unavailable."""
    given: dict[str, Any] = {"params": parameters} if method == "GET" else {"json": parameters}
    try:
        response = client.request(method, f"/api/2.0/mlflow/{path}", **given)
        found = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise Unavailable(REGISTRY_UNREACHABLE.reason) from error
    if response.status_code == httpx.codes.OK and isinstance(found, dict):
        return found
    if isinstance(found, dict) and found.get("error_code") == _MISSING:
        return None
    why = str(found.get("message", "")) if isinstance(found, dict) else ""
    kind = RegistryRefusal if response.status_code in _REFUSALS else Unavailable
    raise kind(f"MLflow answers {path} with status {response.status_code}. {why[:_MAX_REASON]}".strip())


def _has_tag(tags: list[dict[str, str]], name: str) -> bool:
    return any(tag.get("key") == name for tag in tags)
