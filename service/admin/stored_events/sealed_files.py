"""Files of sealed events after an erasure or a retraction."""

from collections.abc import Sequence
from datetime import datetime

import anyio.to_thread

from service.database import Store
from store.events.sealed.rewriting import rewrite_stale


async def rewrite_files(store: Store, file_ids: Sequence[int], now: datetime) -> None:
    """Rewrite files without what was erased or retracted, after the commit; the trainer does so if that fails."""
    if file_ids:
        await anyio.to_thread.run_sync(rewrite_stale, store.transact, file_ids, now)
