"""Load a released version from its local copy, or from a fresh copy of the registry's files.

Only files that match the manifest are loaded. Nothing here changes which version answers.
"""

import threading
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import msgspec
import structlog

from contracts.errors import ArtefactRefused
from contracts.manifest import GRAPH_FILE, NO_PROBE, RATE_FILE, Manifest, check_probe, decode_manifest, read_manifest
from contracts.task import Task
from service.models.forecaster import Forecaster, LoadedForecaster
from service.models.graph_sessions import RateGraph, open_session, read_vocabularies
from service.models.local_copies import fill_copy, read_made_at
from service.models.registry.client import Champion, download_version
from service.validation.rules import compile_rules
from store.releases import Overlay

log = structlog.get_logger(__name__)


def describe_copy(folder: Path, task_name: str, version: str, former_names: Collection[str] = ()) -> Forecaster:
    """A version of which only the manifest is read; nothing else is checked. Raises ArtefactRefused."""
    manifest = decode_manifest(folder)
    return Forecaster(
        version=version,
        manifest=msgspec.structs.replace(manifest, probe=NO_PROBE),
        task=_parse_task(manifest, task_name, former_names),
        overlay=Overlay(manifest.valid_until, None),
        made_at=read_made_at(folder),
    )


def _parse_task(manifest: Manifest, name: str, former_names: Collection[str]) -> Task:
    """The task of a manifest under its present name. Raises ArtefactRefused if it is another one."""
    task = manifest.parse_task()
    if task.name not in (name, *former_names):
        raise ArtefactRefused(f"The manifest is of task {task.name!r}, not {name!r}.")
    return task.model_copy(update={"name": name})


def load_forecaster(
    folder: Path, task_name: str, version: str, *, threads: int, former_names: Collection[str] = ()
) -> LoadedForecaster:
    """Load a version from its folder and check its files, task and probe. Raises ArtefactRefused.

    Its manifest may have a name that the task had before.
    """
    manifest = read_manifest(folder)
    task = _parse_task(manifest, task_name, former_names)
    num_outputs = len(manifest.classes) if task.is_classification else 2
    if any(len(outputs) != num_outputs for outputs in manifest.probe.outputs):
        raise ArtefactRefused(f"The probe's answers do not have {num_outputs} columns.")
    session = open_session(folder / GRAPH_FILE, threads)
    check_probe(manifest, session.run)
    vocabularies = read_vocabularies(session)
    if vocabularies and len(vocabularies) != len(task.categories):
        raise ArtefactRefused(f"The graph has {len(vocabularies)} vocabularies for {len(task.categories)} categories.")
    return LoadedForecaster(
        version=version,
        manifest=manifest,
        task=task,
        rules=compile_rules(task),
        session=session,
        rates=RateGraph((folder / RATE_FILE).read_bytes(), manifest, version, threads),
        errors={age.age: age.mean for age in manifest.ages},
        overlay=Overlay(manifest.valid_until, None),
        made_at=read_made_at(folder),
        known=tuple(
            (feature.name, frozenset(["", *vocabulary]))
            for feature, vocabulary in zip(task.categories, vocabularies, strict=False)
        ),
    )


def load_copy(folder: Path, version: str, *, threads: int, former_names: Collection[str] = ()) -> LoadedForecaster:
    """Load a version from its copy in a task's folder. Raises ArtefactRefused."""
    task = folder.name
    try:
        return load_forecaster(folder / version, task, version, threads=threads, former_names=former_names)
    except ArtefactRefused as error:
        log.error("artefact.refused", task=task, version=version, reason=str(error), source="local copy")
        raise


def load_champion(
    client: httpx.Client,
    folder: Path,
    champion: Champion,
    *,
    has_copy: bool,
    stopping: threading.Event,
    threads: int,
    former_names: Collection[str] = (),
) -> LoadedForecaster:
    """Load an existing copy if it verifies, as after a rollback; otherwise a fresh one.

    Raises Unavailable, ArtefactRefused, and OSError if no copy can be written.
    """
    task, version = folder.name, champion.version
    if has_copy and (folder / version).is_dir():
        with suppress(ArtefactRefused):
            return load_copy(folder, version, threads=threads, former_names=former_names)
    download = partial(download_version, client, task, version, stopping=stopping)
    copy = fill_copy(folder, version, download, made_at=champion.made_at)
    return load_forecaster(copy, task, version, threads=threads, former_names=former_names)
