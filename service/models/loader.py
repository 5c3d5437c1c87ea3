"""Load a released version from its local copy, or from a fresh copy of the registry's files.

Only files that match the manifest are loaded. Nothing here changes which version answers.
"""

import threading
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


def load_copy(folder: Path, version: str, *, threads: int) -> Forecaster:
    """Load a version from its copy in a task's folder. Raises ArtefactRefused."""
    task = folder.name
    try:
        return load_forecaster(folder / version, task, version, threads=threads)
    except ArtefactRefused as error:
        log.error("artefact.refused", task=task, version=version, reason=str(error), source="local copy")
        raise


def load_champion(
    client: httpx.Client, folder: Path, champion: Champion, *, has_copy: bool, stopping: threading.Event, threads: int
) -> Forecaster:
    """Load an existing copy if it verifies, as after a rollback; otherwise a fresh one.

    Raises Unavailable, ArtefactRefused, and OSError if no copy can be written.
    """
    task, version = folder.name, champion.version
    if has_copy and (folder / version).is_dir():
        with suppress(ArtefactRefused):
            return load_copy(folder, version, threads=threads)
    download = partial(download_version, client, task, version, stopping=stopping)
    return load_forecaster(
        fill_copy(folder, version, download, made_at=champion.made_at), task, version, threads=threads
    )
