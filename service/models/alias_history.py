"""The alias may be moved by hand, in MLflow: who reads the history of releases is to find that there too."""

from datetime import datetime

import httpx
import structlog
from sqlalchemy import Connection

from contracts.errors import Unavailable
from service.database import Store
from service.models.registry import find_champion_version
from store.catalog import lock_task
from store.releases import note_moved_alias

log = structlog.get_logger(__name__)


def record_alias_move(
    store: Store, client: httpx.Client, task: str, task_id: int, *, champion: str, now: datetime
) -> None:
    """Where neither a cycle nor the API has moved the alias to `champion`, write down that somebody has.

    Every worker that sees the move asks for this; under the task's row the first writes it, the others find it there.
    """

    def note(connection: Connection) -> bool:
        lock_task(connection, task_id)
        # The alias may have been moved on, and written down, since it was read.
        return find_champion_version(client, task) == champion and note_moved_alias(connection, task_id, champion, now)

    try:
        if store.transact(note):
            log.warning("alias.moved", task=task, version=champion)
    except Unavailable as error:  # the next look tries again
        log.info("alias.not_noted", task=task, version=champion, reason=str(error))
