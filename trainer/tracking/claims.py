"""Claims on names in an MLflow that several installations share: each marks its experiments and models with a tag.

A mark is the name of an installation (`store.tasks.installation`); None claims nothing, and meets any mark.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from mlflow.exceptions import MlflowException, RestException

from store.tasks.installation import INSTALLATION_TAG
from trainer.tracking.errors import TakenName
from trainer.tracking.searches import MAX_FOUND, list_pages
from trainer.tracking.tags import KIND_OF_RUNS, KIND_TAG
from trainer.tracking.translation import ALREADY_EXISTS, DOES_NOT_EXIST

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel


def claim_experiment(client: "MlflowClient", task: str, mark: str | None) -> str:
    """The id of the task's experiment, which MLflow's pages open on its runs. It is created or restored."""
    tags = {KIND_TAG: KIND_OF_RUNS, **_marked(mark)}
    experiment = client.get_experiment_by_name(task)
    if experiment is None:
        try:
            return str(client.create_experiment(task, tags=tags))
        except RestException as error:
            if error.error_code != ALREADY_EXISTS:
                raise
            experiment = client.get_experiment_by_name(task)
    assert experiment is not None, "it exists: MLflow just said so"
    _check_mark("experiment", task, experiment.tags, mark)
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    for key, value in tags.items():
        if key not in experiment.tags:
            client.set_experiment_tag(experiment.experiment_id, key, value)
    return str(experiment.experiment_id)


def find_model(client: "MlflowClient", name: str, mark: str | None) -> "RegisteredModel | None":
    """The task's model; None if there is none. Raises TakenName."""
    try:
        model = client.get_registered_model(name)
    except MlflowException as error:  # of a server or of a folder
        if error.error_code != DOES_NOT_EXIST:
            raise
        return None
    _check_mark("model", name, model.tags, mark)
    return model


def claim_model(client: "MlflowClient", name: str, mark: str | None) -> None:
    """Create the task's model, or mark one that nobody has marked. Raises TakenName."""
    try:
        client.create_registered_model(name, tags=_marked(mark))
    except RestException as error:
        if error.error_code != ALREADY_EXISTS:
            raise
        model = find_model(client, name, mark)
        if mark is not None and model is not None and INSTALLATION_TAG not in model.tags:
            search = partial(client.search_model_versions, f"name='{name}'", max_results=MAX_FOUND)
            for version in list_pages(search):
                _check_mark(f"version {version.version} of model", name, version.tags, mark)
            client.set_registered_model_tag(name, INSTALLATION_TAG, mark)


def _marked(mark: str | None) -> dict[str, str]:
    return {} if mark is None else {INSTALLATION_TAG: mark}


def _check_mark(what: str, name: str, tags: Mapping[str, str], mark: str | None) -> None:
    """Raise TakenName if another installation has marked it."""
    found = tags.get(INSTALLATION_TAG)
    if mark is not None and found not in (None, mark):
        raise TakenName(what, name, str(found))
