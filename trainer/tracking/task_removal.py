"""What MLflow holds of a task is removed or renamed over REST, because the scheduler does not load mlflow.

Every step finds its own traces after a kill and goes on. A model or experiment that others use too keeps what is
theirs: only versions and runs with our tags are deleted. Before a renaming, model and experiment get the task's id as a
tag. So a later attempt, even one with another new name, knows which of them are the task's.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx

from contracts.artifact_proxy import proxied_path
from contracts.errors import ArtefactRefused, RegistryRefusal
from store.releases import ALIAS
from trainer.tracking.rest import ask, ask_pages, delete_folder, open_client
from trainer.tracking.tags import CYCLE_TAG, MANIFEST_TAG, TASK_TAG


def remove_task(mlflow_url: str, names: Sequence[str], task_id: int) -> None:
    """Delete a task's registered model and its experiment, with their files. Raises Unavailable.

    They have the first name, or, if a renaming was under way, one of the others and the tag of the task.

    MLflow only marks an experiment as deleted, and keeps its name. So it is given another one first, and `mlflow gc`
    removes the rest.
    """
    with open_client(mlflow_url) as client:
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
    with open_client(mlflow_url) as client:
        model = _name_to_leave(client, _find_model, names, new_name, task_id)
        experiment = _name_to_leave(client, _find_experiment, names, new_name, task_id)
        tag = {"key": TASK_TAG, "value": str(task_id)}
        if model is not None:
            ask(client, "POST", "registered-models/set-tag", {"name": model, **tag})
            ask(client, "POST", "registered-models/rename", {"name": model, "new_name": new_name})
        if experiment is not None and (found := _find_experiment(client, experiment)) is not None:
            number = str(found["experiment_id"])
            ask(client, "POST", "experiments/set-experiment-tag", {"experiment_id": number, **tag})
            ask(client, "POST", "experiments/update", {"experiment_id": number, "new_name": new_name})


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
    found = ask(client, "GET", "registered-models/get", {"name": name})
    return None if found is None else found["registered_model"]


def _remove_model(client: httpx.Client, name: str) -> None:
    versions = list(ask_pages(client, "GET", "model-versions/search", "model_versions", {"filter": f"name='{name}'"}))
    # A later task of this name must not find it, even if it names somebody else's version.
    ask(client, "DELETE", "registered-models/alias", {"name": name, "alias": ALIAS})
    ours = [version for version in versions if _has_tag(version.get("tags", []), MANIFEST_TAG)]
    if len(ours) == len(versions):
        ask(client, "DELETE", "registered-models/delete", {"name": name})
        return
    for version in ours:
        ask(client, "DELETE", "model-versions/delete", {"name": name, "version": str(version["version"])})


def _remove_experiment(client: httpx.Client, name: str, former_name: str) -> None:
    experiment = _find_experiment(client, name)
    if experiment is not None and experiment["lifecycle_stage"] == "active":
        number = str(experiment["experiment_id"])
        body = {"experiment_ids": [number], "run_view_type": "ACTIVE_ONLY"}
        runs = list(ask_pages(client, "POST", "runs/search", "runs", body))
        ours = [run for run in runs if _has_tag(run.get("data", {}).get("tags", []), CYCLE_TAG)]
        if len(ours) < len(runs):
            for run in ours:
                ask(client, "POST", "runs/delete", {"run_id": run["info"]["run_id"]})
            return
        ask(client, "POST", "experiments/update", {"experiment_id": number, "new_name": former_name})
    former = _find_experiment(client, former_name)
    if former is not None:
        _delete_files(client, str(former.get("artifact_location")))
        if former["lifecycle_stage"] == "active":
            ask(client, "POST", "experiments/delete", {"experiment_id": str(former["experiment_id"])})


def _find_experiment(client: httpx.Client, name: str) -> dict[str, Any] | None:
    found = ask(client, "GET", "experiments/get-by-name", {"experiment_name": name})
    return None if found is None else found["experiment"]


def _delete_files(client: httpx.Client, location: str) -> None:
    """Delete a folder of the artefact store, if MLflow itself serves that store."""
    with suppress(ArtefactRefused):
        delete_folder(client, proxied_path(location))


def _has_tag(tags: list[dict[str, str]], name: str) -> bool:
    return any(tag.get("key") == name for tag in tags)
