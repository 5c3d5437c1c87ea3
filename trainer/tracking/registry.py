"""MLflow, as the trainer writes it: one run per cycle, one registered model per task, and the alias `champion`.

MLflow's client waits an hour for a dead server, and a day if the server asks for it, so limits are set before the
import. A server that does not answer within them raises `Unavailable`, and the caller decides whether to go on without
it. A version is read back over REST, as services do.
"""

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "false")
os.environ.setdefault("MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT", "60")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Experiment, Metric, Param, Run, RunTag

from contracts.artifact_proxy import proxied_path
from contracts.clock import format_moment, parse_moment
from contracts.errors import ArtefactRefused, CycleError, NotFound, Unavailable
from contracts.manifest import MANIFEST_FILE, Manifest, read_manifest
from contracts.runtime.addresses import split_credentials
from contracts.runtime.proxies import exempt_own
from store.releases import ALIAS
from store.tasks.installation import INSTALLATION_TAG
from trainer.tracking.claims import claim_experiment, claim_model, find_model
from trainer.tracking.errors import Missing
from trainer.tracking.flavours import FILES, save_flavours
from trainer.tracking.rest import delete_folder, download_file, find_files, open_client, set_alias, upload_folder
from trainer.tracking.retention import PastRun
from trainer.tracking.runs import EndedRun, Lineage, OpenRun, RunStatus, find_ended, find_open
from trainer.tracking.searches import MAX_FOUND, list_pages
from trainer.tracking.tags import (
    CUTOFF_TAG,
    CYCLE_TAG,
    LEASE_TAG,
    MANIFEST_TAG,
    PARENT_TAG,
    REASON_TAG,
    STATE_TAG,
)
from trainer.tracking.translation import translated_errors

_MAX_COMPARED = 100
# Experiments that one search of runs names.
_MAX_EXPERIMENTS = 1000
_MAX_METRICS = 500
_MAX_PARAM = 6000
_MAX_DIGEST = 36
_MAX_TEXT = 5000
_NUM_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Champion:
    """The version that the alias names; `cutoff` in microseconds, None if the version is not one of Morrow's."""

    version: str
    cutoff: int | None


class Registry:
    """One MLflow server. Every method raises Unavailable if it does not answer in time."""

    def __init__(self, url: str) -> None:
        self.url, credentials = split_credentials(url.rstrip("/"))
        if credentials is not None:
            # MLflow's client reads them only from here, so its errors show the address without them.
            os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = credentials
        self._address = url
        exempt_own(os.environ, self.url)  # MLflow's client finds proxies there
        self._client = MlflowClient(self.url, self.url)
        self._experiments: dict[str, str] = {}
        # Models that bear the mark of the run that was started last.
        self._marked: set[str] = set()

    def start_run(self, task: str, name: str, tags: Mapping[str, str]) -> str:
        """Start a run in the task's experiment; returns its id.

        A run below another one is in the same experiment, which is not looked up again. Raises TakenName if another
        installation than that of the tags has marked experiment or model.
        """
        with translated_errors():
            if PARENT_TAG not in tags or task not in self._experiments:
                mark = tags.get(INSTALLATION_TAG)
                self._marked.discard(task)
                model = find_model(self._client, task, mark)
                if model is not None and mark is not None and model.tags.get(INSTALLATION_TAG) == mark:
                    self._marked.add(task)
                self._experiments[task] = claim_experiment(self._client, task, mark)
            run = self._client.create_run(self._experiments[task], run_name=name, tags=dict(tags))
            return str(run.info.run_id)

    def log(
        self,
        run_id: str,
        metrics: list[tuple[str, float, int, int]],
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Write metrics (key, value, step, milliseconds since the epoch), parameters and tags, in bounded batches."""
        measures = [Metric(key, value, at, step) for key, value, step, at in metrics]
        with translated_errors():
            self._client.log_batch(
                run_id,
                metrics=measures[:_MAX_METRICS],
                params=[Param(key, value[:_MAX_PARAM]) for key, value in params.items()],
                tags=[RunTag(key, value[:_MAX_TEXT]) for key, value in tags.items()],
            )
            for start in range(_MAX_METRICS, len(measures), _MAX_METRICS):
                self._client.log_batch(run_id, metrics=measures[start : start + _MAX_METRICS])

    def log_file(self, run_id: str, file: Path) -> None:
        """Add a small file to the run, such as a picture or the manifest."""
        with translated_errors():
            self._client.log_artifact(run_id, str(file))

    def log_lineage(self, run_id: str, lineage: Lineage) -> None:
        """Record which rows a run uses; a repetition changes nothing."""
        with translated_errors():
            self._client.log_inputs(run_id, [_as_input(lineage)])

    def end_run(self, run_id: str, status: RunStatus, reason: str | None = None) -> None:
        """End a run; a repetition changes only the status."""
        with translated_errors():
            if reason is not None:
                self._client.set_tag(run_id, REASON_TAG, reason[:_MAX_TEXT])
            self._client.set_terminated(run_id, status)

    def open_runs(self, *tasks: str) -> list[OpenRun]:
        """Runs of these tasks that are shown as running and have our tags: all, or the newest of a single task."""
        runs = self._search_runs(tasks, "attributes.status = 'RUNNING'", is_whole=len(tasks) > 1)
        return [one for run in runs if (one := find_open(run.info.run_id, run.data.tags)) is not None]

    def ended_runs(self, tasks: Collection[str]) -> list[EndedRun]:
        """Runs of these tasks' cycles that have ended: all that are not FINISHED, and the newest others.

        Of a single task the newest of both kinds, so that a cycle asks as often however many runs its task has.
        """
        failed = self._search_runs(tasks, "attributes.status != 'FINISHED'", is_whole=len(tasks) > 1)
        query = f"attributes.status = 'FINISHED' AND tags.`{STATE_TAG}` LIKE '%'"
        runs = [*failed, *self._search_runs(tasks, query, is_whole=False)]
        ends = (find_ended(run.info.run_id, run.info.status, run.data.tags) for run in runs)
        return [one for one in ends if one is not None]

    def _search_runs(self, tasks: Collection[str], query: str, *, is_whole: bool) -> list[Run]:
        """The newest page of a search among the runs of these tasks, or all pages."""
        experiments, size = self._experiment_ids(tasks), _MAX_COMPARED if len(tasks) == 1 else MAX_FOUND
        found: list[Run] = []
        for start in range(0, len(experiments), _MAX_EXPERIMENTS):
            some = experiments[start : start + _MAX_EXPERIMENTS]
            runs = list_pages(partial(self._client.search_runs, some, query, max_results=size))
            found += runs if is_whole else islice(runs, size)
        return found

    def _experiment_ids(self, tasks: Collection[str]) -> list[str]:
        """The ids of the experiments of these tasks that there are, each looked up once."""
        unknown = [task for task in tasks if task not in self._experiments]
        if len(unknown) == 1:
            experiment = self._find_experiment(unknown[0])
            self._experiments |= {} if experiment is None else {unknown[0]: experiment}
        elif unknown:
            known = self._list_experiments()
            self._experiments |= {one.name: str(one.experiment_id) for one in known if one.name in tasks}
        return [self._experiments[task] for task in tasks if task in self._experiments]

    def correct_run(self, run_id: str, status: RunStatus, tags: Mapping[str, str], reason: str | None) -> None:
        """Give an ended run another end. A run that did not fail has no reason."""
        self.log(run_id, [], {}, tags)
        if reason is None:
            with suppress(Missing), translated_errors():
                self._client.delete_tag(run_id, REASON_TAG)
        self.end_run(run_id, status, reason)

    def describe_version(self, task: str, version: str) -> str | None:
        """The description of a version; None if it has none or is gone."""
        try:
            with translated_errors():
                return str(self._client.get_model_version(task, version).description or "") or None
        except Missing:
            return None

    def experiments(self) -> list[str]:
        """The names of all experiments: tasks, and anything else on this server."""
        return sorted(str(experiment.name) for experiment in self._list_experiments())

    def _list_experiments(self) -> Iterator[Experiment]:
        return list_pages(partial(self._client.search_experiments, max_results=MAX_FOUND))

    def require_experiment(self, task: str) -> str:
        """The id of the task's experiment. Raises NotFound if it has none."""
        if (experiment := self._find_experiment(task)) is None:
            raise NotFound(f"MLflow holds no experiment of a task {task!r}.")
        return experiment

    def past_runs(self, task: str) -> Iterator[PastRun]:
        """Every run of a task that has Morrow's tags, including fits below a cycle's run; newest first.

        Raises NotFound if the task has no experiment.
        """
        search = partial(self._client.search_runs, [self.require_experiment(task)], max_results=MAX_FOUND)
        for run in list_pages(search):
            tags, info = run.data.tags, run.info
            if CYCLE_TAG in tags and CUTOFF_TAG in tags:
                is_running = info.status == "RUNNING"
                yield PastRun(
                    info.run_id,
                    tags.get(PARENT_TAG),
                    tags[CUTOFF_TAG],
                    info.start_time,
                    is_running,
                    tags.get(INSTALLATION_TAG),
                    tags.get(LEASE_TAG),
                )

    def registered_runs(self, task: str) -> set[str]:
        """The runs that versions of the task's model came from; the page of a version links to its run."""
        search = partial(self._client.search_model_versions, f"name='{task}'", max_results=MAX_FOUND)
        return {version.run_id for version in list_pages(search) if version.run_id}

    def delete_run(self, run_id: str) -> None:
        """Delete a run's files and mark the run as deleted; MLflow keeps its metrics until `mlflow gc`."""
        with translated_errors():
            if self._client.list_artifacts(run_id):
                path = proxied_path(self._client.get_run(run_id).info.artifact_uri)
                with open_client(self._address) as client:
                    delete_folder(client, path)
            self._client.delete_run(run_id)

    def register(
        self,
        folder: Path,
        manifest: Manifest,
        run_id: str,
        tags: Mapping[str, str],
        description: str | None = None,
        *,
        is_new: bool = False,
        before_write: Callable[[], None] = lambda: None,
    ) -> str:
        """Make the artefact a version of its task's model, and read it back; returns the version.

        A repetition for the same artefact finds its version; `is_new` says that this is none. `before_write` is called
        right before a version is created, and may raise to prevent that. Raises Unavailable after some retries,
        CycleError if MLflow refuses, TakenName if another installation than that of the tags has marked the model or
        one of its versions, and ArtefactRefused if the files that come back are not those that were sent.
        """
        name = _model_name(manifest)
        identity = hashlib.sha256((folder / MANIFEST_FILE).read_bytes()).hexdigest()
        tags = {**tags, MANIFEST_TAG: identity, CUTOFF_TAG: format_moment(manifest.cutoff)}
        for attempt in range(_NUM_ATTEMPTS):
            try:
                found = None if is_new and attempt == 0 else self._find_version(name, identity)
                version = found or self._create_version(
                    folder,
                    manifest,
                    run_id=run_id,
                    tags=tags,
                    description=description,
                    before_write=before_write,
                )
                self._read_back(name, version, identity)
                return version
            except Unavailable:
                if attempt + 1 == _NUM_ATTEMPTS:
                    raise
                time.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    def download(self, name: str, version: str, folder: Path) -> None:
        """Copy a version's files into `folder` as a service would, unchecked. Raises ArtefactRefused, CycleError."""
        with open_client(self._address) as client:
            path = proxied_path(find_files(client, name, version))
            for file in FILES:
                download_file(client, f"{path}/{file}", folder / file)

    def fetch(self, name: str, version: str, folder: Path) -> Manifest:
        """The same, and check them. Raises ArtefactRefused, CycleError."""
        self.download(name, version, folder)
        return read_manifest(folder)

    def champion(self, task: str) -> Champion | None:
        """The version that the alias names; None if there is no model or no alias."""
        try:
            with translated_errors():
                version = self._client.get_model_version_by_alias(task, ALIAS)
        except Missing:
            return None
        try:
            return Champion(str(version.version), parse_moment(version.tags.get(CUTOFF_TAG, "")))
        except ValueError:  # not a version of Morrow's, or its tags were edited
            return Champion(str(version.version), None)

    def move_alias(self, task: str, version: str) -> None:
        """Move the alias to this version; the services follow at their next poll."""
        with open_client(self._address) as client:
            set_alias(client, task, ALIAS, version)

    def _find_experiment(self, task: str) -> str | None:
        """The id of the task's experiment; None if there is none."""
        with translated_errors():
            experiment = self._client.get_experiment_by_name(task)
        return None if experiment is None else str(experiment.experiment_id)

    def _find_version(self, name: str, identity: str) -> str | None:
        query = f"name='{name}' and tags.`{MANIFEST_TAG}`='{identity}'"
        found = list_pages(partial(self._client.search_model_versions, query, max_results=MAX_FOUND))
        ready = [int(version.version) for version in found if version.status == "READY"]
        return str(max(ready)) if ready else None

    def _create_version(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        run_id: str,
        tags: Mapping[str, str],
        description: str | None,
        before_write: Callable[[], None],
    ) -> str:
        name, mark = _model_name(manifest), tags.get(INSTALLATION_TAG)
        with translated_errors(), tempfile.TemporaryDirectory(prefix="morrow-") as temporary:
            flavour = Path(temporary) / "model"
            save_flavours(flavour, folder, manifest)
            before_write()
            if name not in self._marked:
                claim_model(self._client, name, mark)
            experiment = self._experiments.get(name) or claim_experiment(self._client, name, mark)
            model = self._client.create_logged_model(experiment, name=name, source_run_id=run_id)
            with open_client(self._address) as client:
                upload_folder(client, proxied_path(model.artifact_location), flavour)
            self._client.finalize_logged_model(model.model_id, "READY")
            before_write()  # once more: the upload may have taken long
            version = self._client.create_model_version(
                name,
                source=f"models:/{model.model_id}",
                run_id=run_id,
                model_id=model.model_id,
                tags=dict(tags),
                description=None if description is None else description[:_MAX_TEXT],
            )
            return str(version.version)

    def _read_back(self, name: str, version: str, identity: str) -> None:
        with tempfile.TemporaryDirectory(prefix="morrow-") as temporary:
            self.fetch(name, version, Path(temporary))
            if hashlib.sha256((Path(temporary) / MANIFEST_FILE).read_bytes()).hexdigest() != identity:
                raise ArtefactRefused(f"Version {version} of {name} came back from MLflow with another manifest.")


def _model_name(manifest: Manifest) -> str:
    """The name of the registered model, checked here because it becomes part of paths and filters."""
    name = manifest.task["name"]
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name):
        raise CycleError("The manifest names no task that could be a model's name.")
    return name


def _as_input(lineage: Lineage) -> DatasetInput:
    dataset = Dataset(
        name=lineage.name,
        digest=lineage.digest[:_MAX_DIGEST],
        source_type="code",
        source=json.dumps({"tags": lineage.source}),
        schema=json.dumps({"mlflow_colspec": lineage.columns}),
        profile=json.dumps(lineage.counts),
    )
    return DatasetInput(dataset, [])
