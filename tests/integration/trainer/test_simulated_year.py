"""A year of weekly windows: late labels, corrections, drift, a jump, poison, silence, no MLflow, kills and downtime.

`tests.integration.simulated_year` checks the laws after every step; here is what befalls which window, and how it
must end.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from cli.local.stack import free_port
from contracts.clock import from_micros, to_micros
from contracts.failure import REGISTRY_UNREACHABLE
from contracts.verdict import LimitCheck, Recalibration
from store.database import events
from store.error_cells import read_cells
from store.events.batches import Event
from store.releases import Release
from tests.integration.drifting_task import Story, flip
from tests.integration.simulated_year import (
    CLOCK,
    DAY,
    HOUR,
    YEAR,
    Deployment,
    boundary,
    broken_rules,
    kill_at,
    make_rows,
)
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.story

NUM_WINDOWS = 52
# The trainer starts when these have been imported.
NUM_IMPORTED = 7
ABSENT_REGISTRY = 11
EMPTY = 16
KILLED = {20: "fit", 21: "alias", 22: "release"}
JUMP = 27
POISONED = 37
DOWN = range(43, 46)


@pytest.fixture
def deployment(engine: Engine, mlflow_url: str, tmp_path: Path) -> Deployment:
    return Deployment(engine, Registry(mlflow_url), tmp_path)


def rows_of(window: int) -> list[Event]:
    """The threshold drifts, and jumps once; one window has all of its labels flipped."""
    rows = make_rows(window, 0.01 * window + (1.0 if window >= JUMP else -1.0)) if window != EMPTY else []
    return [flip(event) for event in rows] if window == POISONED else rows


def overdue(window: int) -> list[Event]:
    """Rows of a window whose labels come later than they are due."""
    return [
        replace(event, known_at=event.at + 10 * DAY // timedelta(microseconds=1)) for event in rows_of(window)[9::25]
    ]


def live_through(deployment: Deployment, window: int) -> None:
    """A window, its cycle, and what comes in and is looked at in the day after."""
    rows, end = rows_of(window), boundary(window + 1)
    late = rows[7::20]
    deployment.now = end
    deployment.receive([row for place, row in enumerate(rows) if place % 20 != 7 and place % 25 != 9])
    if window not in DOWN and window + 1 >= NUM_IMPORTED:
        retrain(deployment, window)
    deployment.now = end + 4 * HOUR
    deployment.receive(late)
    if window > 0:
        deployment.receive(overdue(window - 1))
        deployment.correct(flip(event) for event in rows_of(window - 1)[:2])
    if window not in DOWN:
        deployment.look(end + 13 * HOUR)


def retrain(deployment: Deployment, window: int) -> None:
    """The cycle at the end of a window, and what befalls it."""
    due = boundary(window + 1) + timedelta(minutes=1)
    if window == ABSENT_REGISTRY:
        deployment.tick(due, registry=Registry(f"http://127.0.0.1:{free_port()}"))
        story = Story()
        deployment.tick(due + timedelta(minutes=1), report=story)
        assert story.of("fit.reused")
        assert not story.of("epoch.ended")
    elif window in KILLED:
        deployment.tick(due, report=kill_at(KILLED[window]))
        deployment.tick(due + HOUR)
        deployment.tick(due + 2 * HOUR)
    else:
        deployment.tick(due)


def about(deployment: Deployment, action: str, window: int) -> list[Release]:
    """The rows of that action for the error on a window."""
    start = to_micros(boundary(window))
    return [
        row
        for row in deployment.rows
        if row.action == action
        and isinstance(row.verdict, LimitCheck | Recalibration)
        and to_micros(row.verdict.window) == start
    ]


def test_a_year_of_faults_breaks_no_law(deployment: Deployment) -> None:
    for window in range(NUM_WINDOWS):
        if window == DOWN.stop:
            deployment.start_trainer()
        live_through(deployment, window)
        if window == POISONED + 2:
            deployment.now += HOUR
            deployment.correct(flip(event) for event in rows_of(POISONED)[2:] if event.event_id in deployment.sent)
            deployment.look(deployment.now)
    # By then the last labels are known.
    deployment.look(boundary(NUM_WINDOWS + 2))

    # The labels that come latest of all are known a week after the last window.
    deployment.look(deployment.now + 7 * DAY)

    (away, registered) = deployment.attempts(ABSENT_REGISTRY + 1)
    assert (away.state, away.reason, broken_rules(away)) == ("failed", REGISTRY_UNREACHABLE.reason, ["completed"])
    assert registered.state == "released"
    for window in KILLED:
        (killed, repeated) = deployment.attempts(window + 1)
        assert (killed.state, broken_rules(killed), repeated.state) == ("failed", ["lease"], "released")

    (jumped,) = deployment.attempts(JUMP + 1)
    assert (jumped.state, broken_rules(jumped)) == ("held", ["newest_window"])
    assert about(deployment, "close", JUMP)
    assert ["released"] in [deployment.states(window + 1) for window in range(JUMP + 1, JUMP + 4)]

    (poisoned,) = deployment.attempts(POISONED + 1)
    assert (poisoned.state, broken_rules(poisoned)) == ("held", ["newest_window"])
    closed, reopened = (about(deployment, action, POISONED) for action in ("close", "reopen"))
    assert {row.version for row in closed} == {row.version for row in reopened}
    assert closed

    assert [deployment.states(window + 1) for window in DOWN] == [[], [], []]
    assert deployment.states(DOWN.stop + 1) == ["released"]
    ordinary = set(range(NUM_IMPORTED, NUM_WINDOWS)) - {
        *KILLED,
        *DOWN,
        EMPTY,
        ABSENT_REGISTRY,
        *range(JUMP, JUMP + 3),
        POISONED,
    }
    states = [deployment.states(window + 1) for window in sorted(ordinary)]
    assert states.count(["released"]) >= 0.9 * len(states)
    check_that_events_count_once(deployment)


def check_that_events_count_once(deployment: Deployment) -> None:
    """In the store, and in the cell of every fit on every window, with all that came late or was corrected."""
    sent: dict[int, int] = {}
    for event in deployment.sent.values():
        window = CLOCK.window_start(event.at)
        sent[window] = sent.get(window, 0) + 1
    current = select(func.count()).select_from(events).where(events.c.superseded_at.is_(None))
    with deployment.engine.connect() as connection:
        assert connection.execute(current).scalar_one() == len(deployment.sent)
        until = to_micros(boundary(NUM_WINDOWS))
        cells = read_cells(connection, deployment.schema.task_id, YEAR.recipe, until=until)
    found = {cell.window: set[tuple[int, int]]() for cell in cells}
    for cell in cells:
        found[cell.window].add((cell.num_rows, cell.num_revisions))
    assert len(found) > NUM_WINDOWS - NUM_IMPORTED
    assert found == {
        window: {(sent[window], sent[window] + deployment.num_corrections.get(window, 0))} for window in found
    }, {str(from_micros(window)): marks for window, marks in found.items()}
