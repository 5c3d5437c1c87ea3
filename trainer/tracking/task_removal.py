"""What MLflow holds of a task is removed or renamed over REST, because the scheduler does not load mlflow.

Every step finds its own traces after a kill and goes on. Other installations may have tasks of the same name in this
MLflow, and people models of their own. So only what is this installation's is touched: by its mark, or without a mark
by the runs and versions that its database names. Before a renaming, model and experiment get the task's id as a tag. So
a later attempt, even one with another new name, knows which of them are the task's.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx

from contracts.artifact_proxy import proxied_path
from contracts.errors import ArtefactRefused, RegistryRefusal
from contracts.shown import say_count
from store.releases import ALIAS
from store.tasks.installation import INSTALLATION_TAG, Traces
from trainer.tracking.rest import ask, ask_pages, delete_folder, open_client
from trainer.tracking.tags import CYCLE_TAG, LEASE_TAG, MANIFEST_TAG, TASK_TAG


def remove_task(mlflow_url: str, names: Sequence[str], task_id: int, traces: Traces) -> list[str]:
    """Delete a task's registered model and its experiment, with their files. Raises Unavailable.

    They have the first name, or, if a renaming was under way, one of the others and the tag of the task. Returns in
    words what was left, because it is not known to be this installation's.

    MLflow only marks an experiment as deleted, and keeps its name. So it is given another one first, and `mlflow gc`
    removes the rest.
    """
    left: list[str] = []
    with open_client(mlflow_url) as client:
        for name in names:
            is_first = name == names[0]
            model = _find_model(client, name)
            if model is not None and (is_first or _is_of(model, task_id, traces)):
                _remove_model(client, model, traces, left)
            experiment = _find_experiment(client, name)
            if is_first or _is_of(experiment, task_id, traces):
                # Two installations may delete tasks of the same name and id.
                former_name = f"{name} (deleted task {task_id} of {traces.installation})"
                _remove_experiment(client, experiment, former_name, traces=traces, left=left)
    return left


def rename_task(mlflow_url: str, names: Sequence[str], new_name: str, task_id: int, traces: Traces) -> list[str]:
    """Rename a task's registered model and its experiment. Raises RegistryRefusal, Unavailable.

    They have the first of `names`, or, if an earlier renaming was under way, one of the others and the tag of the task.
    Nothing is renamed if MLflow has the new name for something else. Returns in words what was left, because it is not
    known to be this installation's.
    """
    left: list[str] = []
    with open_client(mlflow_url) as client:
        model = _name_to_leave(client, _find_model, names, new_name, task_id, traces=traces, left=left)
        experiment = _name_to_leave(client, _find_experiment, names, new_name, task_id, traces=traces, left=left)
        tags = {INSTALLATION_TAG: traces.installation, TASK_TAG: str(task_id)}
        if model is not None:
            for key, value in tags.items():
                ask(client, "POST", "registered-models/set-tag", {"name": model, "key": key, "value": value})
            ask(client, "POST", "registered-models/rename", {"name": model, "new_name": new_name})
        if experiment is not None and (found := _find_experiment(client, experiment)) is not None:
            which = {"experiment_id": str(found["experiment_id"])}
            for key, value in tags.items():
                ask(client, "POST", "experiments/set-experiment-tag", {**which, "key": key, "value": value})
            ask(client, "POST", "experiments/update", {**which, "new_name": new_name})
    return left


def _name_to_leave(
    client: httpx.Client,
    find: Callable[[httpx.Client, str], dict[str, Any] | None],
    names: Sequence[str],
    new_name: str,
    task_id: int,
    *,
    traces: Traces,
    left: list[str],
) -> str | None:
    """The name of the task's model or experiment; None if it has none, or has the new name.

    Raises RegistryRefusal if MLflow has something else under the new name, or others' versions or runs under the old.
    """
    present = find(client, new_name)
    if present is not None and (new_name == names[0] or _is_of(present, task_id, traces)):
        return None
    own = None
    for name in names:
        found = None if name == new_name else find(client, name)
        if found is None or found.get("lifecycle_stage", "active") != "active":
            continue
        if _is_of(found, task_id, traces) or (name == names[0] and _is_ours_alone(client, found, traces, left)):
            own = name
            break
    if own is not None and present is not None:
        kind = "an experiment" if "experiment_id" in present else "a registered model"
        deleted = "" if present.get("lifecycle_stage", "active") == "active" else " in its bin"
        raise RegistryRefusal(f"MLflow has {kind} named {new_name!r}{deleted}, which is not the task's.")
    return own


def _is_ours_alone(client: httpx.Client, found: dict[str, Any], traces: Traces, left: list[str]) -> bool:
    """Whether a model or an experiment may be renamed whole; adds to `left` if all of it may be somebody else's.

    Raises RegistryRefusal if some of it is known to be ours, and some not.
    """
    what = _name_whole(found)
    if _is_anothers(found, traces):
        left.append(f"{what}: another installation's")
        return False
    if "experiment_id" in found:
        runs = _list_runs(client, found)
        known = [_is_our_run(run, traces) for run in runs]
        morrows = [CYCLE_TAG in _run_tags(run) for run in runs]
    else:
        versions = _list_versions(client, found["name"])
        known = [_is_our_version(version, traces) for version in versions]
        morrows = [MANIFEST_TAG in _read_tags(version.get("tags")) for version in versions]
    # What Morrow did not write goes along, as it always has.
    unknown = [is_morrows and not is_ours for is_morrows, is_ours in zip(morrows, known, strict=True)]
    if not any(unknown):
        return True
    if not any(known):
        left.append(f"{what}: not known to be this installation's")
        return False
    raise RegistryRefusal(
        f"MLflow's {what} also holds {sum(unknown)} of another installation, or that this database does not know."
    )


def _is_of(found: dict[str, Any] | None, task_id: int, traces: Traces) -> bool:
    """Whether a model or an experiment has the tags of this task and installation."""
    tags = {} if found is None else _read_tags(found.get("tags"))
    return tags.get(TASK_TAG) == str(task_id) and tags.get(INSTALLATION_TAG) == traces.installation


def _is_anothers(found: dict[str, Any], traces: Traces) -> bool:
    """Whether a model or an experiment has the mark of another installation."""
    return _read_tags(found.get("tags")).get(INSTALLATION_TAG, traces.installation) != traces.installation


def _is_our_run(run: dict[str, Any], traces: Traces) -> bool:
    """By its mark; or by its id or its cycle's lease, which also the runs below a cycle's have."""
    tags = _run_tags(run)
    return traces.has(tags.get(INSTALLATION_TAG), run["info"]["run_id"], tags.get(LEASE_TAG))


def _is_our_version(version: dict[str, Any], traces: Traces) -> bool:
    """By its mark, or by its run or number."""
    tags = _read_tags(version.get("tags"))
    if (mark := tags.get(INSTALLATION_TAG)) is not None:
        return mark == traces.installation
    is_known = version.get("run_id") in traces.run_ids or str(version["version"]) in traces.versions
    return MANIFEST_TAG in tags and is_known


def _find_model(client: httpx.Client, name: str) -> dict[str, Any] | None:
    found = ask(client, "GET", "registered-models/get", {"name": name})
    return None if found is None else found["registered_model"]


def _remove_model(client: httpx.Client, model: dict[str, Any], traces: Traces, left: list[str]) -> None:
    name = model["name"]
    if _is_anothers(model, traces):
        left.append(f"{_name_whole(model)}: another installation's")
        return
    versions = _list_versions(client, name)
    ours = [version for version in versions if _is_our_version(version, traces)]
    # A later task of this name must not find a version that answered for this one, even if somebody else made it.
    ended = {str(version["version"]) for version in ours} | {
        str(version["version"])
        for version in versions
        if str(version["version"]) in traces.versions and INSTALLATION_TAG not in _read_tags(version.get("tags"))
    }
    for alias in model.get("aliases", []):
        if alias.get("alias") == ALIAS and str(alias.get("version")) in ended:
            ask(client, "DELETE", "registered-models/alias", {"name": name, "alias": ALIAS})
    if len(ours) == len(versions):
        ask(client, "DELETE", "registered-models/delete", {"name": name})
        return
    left.append(
        f"{_name_whole(model)}: {say_count(len(versions) - len(ours), 'version')} not known to be this installation's"
    )
    for version in ours:
        ask(client, "DELETE", "model-versions/delete", {"name": name, "version": str(version["version"])})


def _remove_experiment(
    client: httpx.Client,
    experiment: dict[str, Any] | None,
    former_name: str,
    *,
    traces: Traces,
    left: list[str],
) -> None:
    if experiment is not None and _is_anothers(experiment, traces):
        left.append(f"{_name_whole(experiment)}: another installation's")
    elif experiment is not None and experiment["lifecycle_stage"] == "active":
        number = str(experiment["experiment_id"])
        runs = _list_runs(client, experiment)
        ours = [run for run in runs if _is_our_run(run, traces)]
        if len(ours) < len(runs):
            others = say_count(len(runs) - len(ours), "run")
            left.append(f"{_name_whole(experiment)}: {others} not known to be this installation's")
            for run in ours:
                if run["info"].get("lifecycle_stage", "active") == "active":
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


def _list_versions(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    return list(ask_pages(client, "GET", "model-versions/search", "model_versions", {"filter": f"name='{name}'"}))


def _list_runs(client: httpx.Client, experiment: dict[str, Any]) -> list[dict[str, Any]]:
    """All runs, also those in the bin: people can take them back."""
    body = {"experiment_ids": [str(experiment["experiment_id"])], "run_view_type": "ALL"}
    return list(ask_pages(client, "POST", "runs/search", "runs", body))


def _delete_files(client: httpx.Client, location: str) -> None:
    """Delete a folder of the artefact store, if MLflow itself serves that store."""
    with suppress(ArtefactRefused):
        delete_folder(client, proxied_path(location))


def _name_whole(found: dict[str, Any]) -> str:
    return f"{'experiment' if 'experiment_id' in found else 'model'} {found['name']!r}"


def _run_tags(run: dict[str, Any]) -> dict[str, str]:
    return _read_tags(run.get("data", {}).get("tags"))


def _read_tags(tags: list[dict[str, str]] | None) -> dict[str, str]:
    return {str(tag.get("key")): str(tag.get("value")) for tag in tags or []}
