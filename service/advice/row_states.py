"""The state of a task as lists show it: that of its version, or that of a task that is out of service."""

from datetime import datetime, timedelta
from typing import Literal

from contracts.clock import to_micros
from contracts.task import Task
from service.advice.next_step import is_expiring
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import TaskState, state_of
from store.tasks.changes import Lifecycle

# One list of values, so that a refusal of another value names them all.
RowState = Literal["no_model", "valid", "closed", "expired", "expiring", "paused", "archived"]


def find_row_state(
    forecaster: Forecaster | None,
    task_state: TaskState | None,
    task: Task | None,
    lifecycle: Lifecycle = "active",
    *,
    now: datetime,
    cycle_limit: timedelta,
) -> RowState:
    """The state of a task, in which a version that is about to expire has a name of its own."""
    if lifecycle != "active":
        return lifecycle
    state = state_of(forecaster, task_state, to_micros(now))
    if state != "valid" or forecaster is None or task is None:
        return state
    return "expiring" if is_expiring(task, forecaster, now, cycle_limit) else state
