"""What a process says of a task that it no longer serves."""

from contracts.errors import NotFound, TaskArchived, TaskRenamed
from service.models.task_states.departed_tasks import explain_absence
from store.tasks.changes import Departures

DEPARTED = Departures(
    num_changes=3,
    archived=frozenset({"old"}),
    renamed={"former": "present"},
    deleted={"gone": frozenset({7})},
)


def test_each_task_that_has_left_is_told_how() -> None:
    deleted = explain_absence("gone", DEPARTED, ["present"])
    assert isinstance(deleted, NotFound)
    assert str(deleted) == "There is no task named 'gone': it was deleted. GET /tasks/gone says when and by whom."
    assert isinstance(explain_absence("old", DEPARTED, ["present"]), TaskArchived)
    assert isinstance(explain_absence("former", DEPARTED, ["present"]), TaskRenamed)
    assert "deleted" not in str(explain_absence("unknown", DEPARTED, ["present"]))
