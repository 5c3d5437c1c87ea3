"""Load a released version from its local copy, or from a fresh copy of the registry's files.

Only files that match the manifest are loaded. Nothing here changes which version answers.
"""

import threading
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import structlog

from contracts.errors import ArtefactRefused
from service.models.forecaster import Forecaster, load_forecaster
from service.models.local_copies import fill_copy
from service.models.registry import Champion, download_version

log = structlog.get_logger(__name__)


def load_copy(folder: Path, version: str, *, threads: int, former_names: Collection[str] = ()) -> Forecaster:
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
) -> Forecaster:
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
