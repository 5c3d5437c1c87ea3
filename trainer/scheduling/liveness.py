"""The heartbeat that every tick of the trainer leaves, for the container's health check and for `morrow up`."""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from trainer.settings import TrainerSettings

HEARTBEAT_FILE = "trainer.heartbeat"
_LEAST_PATIENCE_SECONDS = 60.0


def is_alive(settings: TrainerSettings, now: datetime) -> bool:
    """Whether a trainer with this home has ticked lately."""
    try:
        ticked_at = heartbeat_file(settings).stat().st_mtime
    except OSError:
        return False
    return now.timestamp() - ticked_at <= max(_LEAST_PATIENCE_SECONDS, 10 * settings.tick_seconds)


def write_heartbeat(settings: TrainerSettings) -> None:
    """Record a tick. A home that was removed is created again, since a trainer cannot tick without one."""
    settings.home.mkdir(parents=True, exist_ok=True)
    heartbeat_file(settings).touch()


def retire_heartbeat(settings: TrainerSettings) -> None:
    """Record that the trainer has stopped in good order."""
    with suppress(OSError):
        os.utime(heartbeat_file(settings), (0, 0))


def heartbeat_file(settings: TrainerSettings) -> Path:
    """The file that every tick touches."""
    return settings.home / HEARTBEAT_FILE
