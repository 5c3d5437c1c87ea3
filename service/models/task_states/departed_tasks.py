"""Which tasks a process must stop serving: archived and deleted ones, and those whose name belongs to another task now.

A task is given up only if the history of changes says so. A database that merely lacks a task may be the wrong one.
"""

from collections.abc import Mapping, Sequence

from contracts.errors import MorrowError, NotFound, TaskArchived, TaskRenamed
from contracts.spec.spec_values import say_no_task
from store.tasks.changes import Departures


def find_renamed(
    served: Mapping[str, int | None], task_ids: Mapping[str, int], departures: Departures
) -> dict[str, str]:
    """Earlier names that are served here -> the present names of their tasks."""
    present = {task_id: name for name, task_id in task_ids.items()}
    return {
        name: present[task_id]
        for name, task_id in served.items()
        if task_id in present and name in departures.former.get(task_id, ()) and present[task_id] != name
    }


def find_departed(served: Mapping[str, int | None], task_ids: Mapping[str, int], departures: Departures) -> list[str]:
    """Names to give up. `served` are the names known here with the ids of their tasks, None if unknown.

    `task_ids` are the live tasks of the store.
    """
    return [name for name, task_id in served.items() if _has_left(name, task_id, task_ids.get(name), departures)]


def explain_absence(name: str, departures: Departures, served: Sequence[str]) -> MorrowError:
    """The error for a name that is not served here, while others are."""
    if name in departures.archived:
        return TaskArchived(name)
    if name in departures.renamed:
        return TaskRenamed(name, departures.renamed[name])
    if name in departures.deleted:
        return NotFound(f"There is no task named {name!r}: it was deleted. GET /tasks/{name} says when and by whom.")
    return NotFound(say_no_task(name, served))


def _has_left(name: str, task_id: int | None, live: int | None, departures: Departures) -> bool:
    if live is not None and live == task_id:
        return False
    if live is None and name in departures.archived | departures.renamed.keys():
        return True
    deleted = departures.deleted.get(name, frozenset())
    return bool(deleted) if task_id is None else task_id in deleted
