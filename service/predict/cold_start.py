"""Wait for a task's first version if another worker already serves it.

Each worker polls the registry at its own times. Without this wait, one worker could answer a client, and the next
worker could refuse it because nothing is loaded yet.
"""

import anyio

from service.models.follower import Follower
from service.models.local_copies import list_copies, read_current
from service.models.task_states.task_state import RegistryState
from service.settings import ServiceSettings

PATIENCE_SECONDS = 5.0


async def await_first(follower: Follower, settings: ServiceSettings, task: str | None) -> None:
    """Wait, for a limited time, until this worker has loaded the home's version of a task, or of every task.

    The wait ends early if no such version can be expected.
    """
    if settings.workers == 1:
        return
    with anyio.move_on_after(PATIENCE_SECONDS):
        while _is_coming(follower, settings, task):
            await follower.poll_now()


def _is_coming(follower: Follower, settings: ServiceSettings, task: str | None) -> bool:
    models = settings.home / "models"
    if task is None:
        copied = {*list_copies(models)}
    else:
        copied = {task} if follower.knows(task) and read_current(models / task) is not None else set()
    missing = copied - follower.forecasters.keys()
    return any(follower.registries.get(name, RegistryState()).state == "ok" for name in missing)
