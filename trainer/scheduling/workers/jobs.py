"""The jobs that the scheduler gives a training process, each as one line of JSON."""

from typing import Any

import msgspec

from store.cycles.ledger import Cycle
from trainer.settings import TrainerSettings


class RunCycle(msgspec.Struct, frozen=True, tag="cycle"):
    """Carry out this claimed cycle of the task of this name.

    Before it begins, the runs of its task are compared with the ledger, or those of all tasks if `sweeps_all` is set.
    """

    cycle: Cycle
    task: str
    sweeps_all: bool = False


class Sweep(msgspec.Struct, frozen=True, tag="sweep"):
    """End the MLflow runs whose cycle has ended without them."""


class FillRivals(msgspec.Struct, frozen=True, tag="rivals"):
    """Fit and score the missing cells of this task's rivals."""

    task_id: int
    task: str


class HelpCycle(msgspec.Struct, frozen=True, tag="unit"):
    """Carry out this claimed unit of a cycle of this task, which another process carries out."""

    unit_id: int
    task_id: int
    task: str
    lease: str


Job = RunCycle | Sweep | FillRivals | HelpCycle


class Message(msgspec.Struct, frozen=True):
    """A job and its settings."""

    settings: dict[str, Any]
    job: Job


class Outcome(msgspec.Struct, frozen=True):
    """What a training process reports of a job that it has done, and whether it waits for another one."""

    stays: bool


def encode_outcome(outcome: Outcome) -> bytes:
    """The report as one line."""
    return msgspec.json.encode(outcome) + b"\n"


def decode_outcome(line: bytes) -> Outcome:
    """The report of a line."""
    return msgspec.json.decode(line, type=Outcome)


def encode_job(settings: TrainerSettings, job: Job) -> bytes:
    """The message as one line."""
    return msgspec.json.encode(Message(settings.model_dump(mode="json"), job)) + b"\n"


def decode_job(line: bytes) -> tuple[TrainerSettings, Job]:
    """Settings and job of a line."""
    message = msgspec.json.decode(line, type=Message)
    return TrainerSettings(**message.settings), message.job
