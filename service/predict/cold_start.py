"""A first version that another worker answers from already is waited for, and not denied.

Workers look at the registry each in its own time. Without this, a client that one of them has answered would hear from
the next that nothing is loaded yet.
"""

import anyio

from service.models.follower import Follower
from service.models.local_copies import list_copies
from service.models.task_state import RegistryState
from service.settings import ServiceSettings

PATIENCE_SECONDS = 5.0


async def await_first(follower: Follower, settings: ServiceSettings, task: str | None) -> None:
    """Until this worker has what the home holds of a task, or of any, while that may still come; a bounded time."""
    if settings.workers == 1:
        return
    with anyio.move_on_after(PATIENCE_SECONDS):
        while _is_coming(follower, settings, task):
            await follower.look_now()


def _is_coming(follower: Follower, settings: ServiceSettings, task: str | None) -> bool:
    missing = list_copies(settings.home / "models").keys() - follower.forecasters.keys()
    wanted = missing if task is None else missing & {task}
    return any(follower.registries.get(name, RegistryState()).state == "ok" for name in wanted)
