"""People can move the alias by hand in MLflow; the history of releases records these moves too."""

from datetime import datetime

import httpx
import structlog
from sqlalchemy import Connection

from contracts.errors import Unavailable
from service.database import Store
from service.models.registry.client import find_champion_version
from store.releases import note_moved_alias
from store.tasks.catalog import lock_task

log = structlog.get_logger(__name__)


def record_alias_move(
    store: Store, client: httpx.Client, task: str, task_id: int, *, champion: str, now: datetime
) -> None:
    """Record that the alias was moved to `champion` by hand, unless a cycle or the API moved it.

    Every worker that sees the move calls this. The task's row is locked, so that only the first worker records it.
    """

    def note(connection: Connection) -> bool:
        lock_task(connection, task_id)
        # Since it was read, the alias may have been moved again, and that move recorded.
        return find_champion_version(client, task) == champion and note_moved_alias(connection, task_id, champion, now)

    try:
        if store.transact(note):
            log.warning("alias.moved", task=task, version=champion)
    except Unavailable as error:  # the next poll retries
        log.info("alias.not_noted", task=task, version=champion, reason=str(error))
