"""A deployment that lives by a fake clock, with the laws that no fault may break, checked after every step.

Everything but the clock is real: PostgreSQL, MLflow, the fits, the scheduler's requests and the live job.
"""

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
from sqlalchemy import Engine

from contracts.clock import MICROSECOND, to_micros
from store.cycles.leases import claim_cycle, expire_leases
from store.cycles.ledger import Cycle, list_cycles
from store.events.batches import Event
from store.events.writes import append_events, correct_event
from store.releases import Release, list_releases, read_overlay
from store.tasks.catalog import define_task
from tests.integration.drifting_task import Story, drifting_task, settings
from trainer.monitoring.live_scoring import LiveScoring
from trainer.progress import Report
from trainer.retraining.cycle import run_cycle
from trainer.scheduling.scheduler import Trainer
from trainer.tracking.registry import Registry

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday, as the epoch was: a boundary of weekly windows
WEEK, DAY, HOUR = timedelta(days=7), timedelta(days=1), timedelta(hours=1)
ROWS_PER_WINDOW = 60
HISTORY = 6

YEAR = drifting_task(
    name="year",
    window="P7D",
    label_delay="PT12H",
    schedule="window",
    guard={"max_age": 3, "tolerance": 5.0, "min_rows": 100, "rivals": []},
    training={
        "num_seeds": 1,
        "history": HISTORY,
        "calendar": [],
        "width": 4,
        "num_layers": 1,
        "time_width": 2,
        "trelu_width": 2,
        "embedding": 2,
        "batch_size": 64,
        "pretrain_epochs": 12,
        "pretrain_rate": 0.03,
        "finetune_windows": 1,
        "finetune_epochs": 1,
    },
)
CLOCK = YEAR.clock


class Killed(BaseException):
    """Nothing of ours may catch it, as nothing can catch SIGKILL."""


def kill_at(step: str) -> Report:
    """A report that ends the process at the beginning of a step."""

    def report(event: str, /, **facts: object) -> None:
        if event == "cycle.step" and facts["step"] == step:
            raise Killed

    return report


def boundary(num_windows: float) -> datetime:
    """The moment that many windows after the start."""
    return START + num_windows * WEEK


def make_rows(window: int, threshold: float) -> list[Event]:
    """Rows of a window, labelled by a threshold of x, one label in ten by chance; known twelve hours later."""
    rng = np.random.default_rng(window)
    begin, found = to_micros(boundary(window)), []
    for k in range(ROWS_PER_WINDOW):
        x, kind, is_chance = float(rng.normal()), "ab"[int(rng.integers(2))], rng.random() < 0.1
        is_yes = rng.random() < 0.5 if is_chance else x > threshold
        at = begin + k * (CLOCK.window // ROWS_PER_WINDOW)
        known_at = at + YEAR.label_delay // MICROSECOND
        found.append(Event(f"{window}-{k}", at, known_at, (x,), (kind,), "yes" if is_yes else "no"))
    return found


class Deployment:
    """The stores, the clock, and what has been true so far."""

    def __init__(self, engine: Engine, registry: Registry, home: Path) -> None:
        with engine.begin() as connection:
            self.schema = define_task(connection, YEAR, START)[0]
        self.engine, self.registry, self.home, self.now = engine, registry, home, START
        self.sent: dict[str, Event] = {}
        self.num_corrections: dict[int, int] = {}
        self.rows: list[Release] = []
        self._champion_cutoff = 0
        self.start_trainer()

    def start_trainer(self) -> None:
        given = settings(self.home, mlflow_url=self.registry.url)
        self._trainer, self._live = Trainer(self.engine, given), LiveScoring(self.engine, given, threading.Event())

    def receive(self, batch: Sequence[Event]) -> None:
        """A producer sends a batch, and sends it again for want of an answer."""
        with self.engine.begin() as connection:
            for outcome in ("created", "duplicate"):
                assert set(append_events(connection, self.schema, batch, self.now)) <= {outcome}
        self.sent |= {event.event_id: event for event in batch}

    def correct(self, batch: Iterable[Event]) -> None:
        with self.engine.begin() as connection:
            for event in batch:
                assert correct_event(connection, self.schema, event, self.now) == "corrected"
                window = CLOCK.window_start(event.at)
                self.num_corrections[window] = self.num_corrections.get(window, 0) + 1

    def tick(self, now: datetime, *, registry: Registry | None = None, report: Report | None = None) -> None:
        """The scheduler's tick, its cycle carried out in this process so that it lives by the same clock."""
        self.now = now
        with self.engine.begin() as connection:
            expire_leases(connection, now)
        self._trainer._request(now)
        given = self._trainer.settings
        with self.engine.begin() as connection:
            lease = timedelta(seconds=given.lease_seconds)
            cycle = claim_cycle(connection, uuid4().hex, now, lease, newest_first=[self.schema.task_id])
        if cycle is not None:
            with suppress(Killed):
                run_cycle(
                    self.engine,
                    registry or self.registry,
                    cycle,
                    settings=given,
                    now=lambda: self.now,
                    report=report or Story(),
                )
            assert self.cycles()[0].num_rows == self._count_known(cycle.cutoff)
        self.check()

    def look(self, now: datetime) -> None:
        """The live job's look."""
        self.now = now
        self._live.score_new_labels(now)
        self.check()

    def cycles(self) -> Sequence[Cycle]:
        """Newest cutoff and attempt first."""
        with self.engine.connect() as connection:
            return list_cycles(connection, self.schema.task_id)

    def attempts(self, num_windows: int) -> list[Cycle]:
        """The attempts at the cutoff that many windows after the start, first one first."""
        cutoff = to_micros(boundary(num_windows))
        return [cycle for cycle in reversed(self.cycles()) if cycle.cutoff == cutoff]

    def states(self, num_windows: int) -> list[str]:
        return [cycle.state for cycle in self.attempts(num_windows)]

    def check(self) -> None:
        """The laws."""
        cycles, champion = self.cycles(), self.registry.champion(YEAR.name)
        with self.engine.connect() as connection:
            rows = list_releases(connection, self.schema.task_id)[::-1]
            overlay = None if champion is None else read_overlay(connection, self.schema.task_id, champion.version)
        assert rows[: len(self.rows)] == self.rows, "releases only grow"
        self.rows = rows
        promised = {row.version: row.valid_until for row in rows if row.action == "release"}
        released = [cycle.cutoff for cycle in cycles if cycle.state == "released"]
        assert len(released) == len(set(released)) == len(promised), "one release a cutoff"
        assert sum(row.action == "release" for row in rows) == len(promised)
        if champion is not None:
            assert champion.cutoff is not None
            assert champion.cutoff >= self._champion_cutoff, "the alias never goes back by itself"
            self._champion_cutoff = champion.cutoff
            if overlay is not None:
                longest = champion.cutoff + YEAR.guard.max_age * CLOCK.window
                assert overlay.valid_until <= promised[champion.version] <= longest
        for cycle in cycles:
            if cycle.state in ("held", "skipped", "failed"):
                assert broken_rules(cycle), "whatever is not released says why"

    def _count_known(self, cutoff: int) -> int:
        """The events that a cycle of this cutoff reads, by what was sent."""
        first = cutoff - HISTORY * CLOCK.window
        return sum(first <= event.at < cutoff and event.known_at <= cutoff for event in self.sent.values())


def broken_rules(cycle: Cycle) -> list[str]:
    assert cycle.verdict is not None
    return [decision.rule for decision in cycle.verdict.decisions if not decision.passed]
