"""What the scheduler may want of a training process, as one line of JSON."""

from typing import Any

import msgspec

from store.cycles import Cycle
from trainer.settings import TrainerSettings


class RunCycle(msgspec.Struct, frozen=True, tag="cycle"):
    """Carry out this claimed cycle of the task of this name."""

    cycle: Cycle
    task: str


class Sweep(msgspec.Struct, frozen=True, tag="sweep"):
    """Close the MLflow runs whose cycle has ended without them."""


class FillRivals(msgspec.Struct, frozen=True, tag="rivals"):
    """Fit and score what the rivals of this task lack."""

    task_id: int
    task: str


Job = RunCycle | Sweep | FillRivals


class Order(msgspec.Struct, frozen=True):
    """A job, and the settings to do it with."""

    settings: dict[str, Any]
    job: Job


def write_order(settings: TrainerSettings, job: Job) -> bytes:
    """The order as one line."""
    return msgspec.json.encode(Order(settings.model_dump(mode="json"), job)) + b"\n"


def read_order(line: bytes) -> tuple[TrainerSettings, Job]:
    """Settings and job of a line."""
    order = msgspec.json.decode(line, type=Order)
    return TrainerSettings(**order.settings), order.job
