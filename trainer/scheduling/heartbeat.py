"""The sign of life that every tick of the trainer leaves, for the container's health check and for `morrow up`."""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from trainer.settings import TrainerSettings

HEARTBEAT_FILE = "trainer.heartbeat"
_LEAST_PATIENCE_SECONDS = 60.0


def is_alive(settings: TrainerSettings, now: datetime) -> bool:
    """Whether a trainer with this home has ticked lately: what the container's health check asks."""
    try:
        beat = heartbeat(settings).stat().st_mtime
    except OSError:
        return False
    return now.timestamp() - beat <= max(_LEAST_PATIENCE_SECONDS, 10 * settings.tick_seconds)


def beat(settings: TrainerSettings) -> None:
    """Leave a sign of life. A home that was removed is made anew: without one there is no tick."""
    settings.home.mkdir(parents=True, exist_ok=True)
    heartbeat(settings).touch()


def stop_beating(settings: TrainerSettings) -> None:
    """Leave a last sign: a trainer was here, and went in good order."""
    with suppress(OSError):
        os.utime(heartbeat(settings), (0, 0))


def heartbeat(settings: TrainerSettings) -> Path:
    """The file that every tick touches."""
    return settings.home / HEARTBEAT_FILE
