"""Scoring of the answers that were given, next to the scheduler's tick: logged answers against labels as they come.

The writer of the log and a trigger on events note which parts of the log have changed (`store.predictions.buckets`).
Each such part is read and summed again as a whole. So late labels, corrections, retractions and erasures count like the
first label, a restart loses nothing, and what has not changed is not read. After a pass the job rests ten times as long
as the pass took, so that it takes at most a tenth of a core.

It shows how right answers were, and closes nothing: the horizon is judged by kept fits
(`docs/decisions/0050-given-answers.md`).
"""

import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import Clock, to_micros
from store.outages import is_locked, name_outage
from store.predictions.answer_scores import (
    Key,
    delete_sums_before,
    lock_scoring,
    measure_again,
    replace_sums,
)
from store.predictions.buckets import bucket_at, delete_notes, list_touched, list_touched_tasks
from store.predictions.labelled import read_labelled
from store.releases import list_readable_releases
from store.tasks.catalog import Schema, read_tasks
from trainer.monitoring.answer_errors import score_answers

log = structlog.get_logger(__name__)

REST_FACTOR = 10.0
PAUSE_SECONDS = 5.0
# How long one transaction reads buckets of a task, and how often old sums are deleted.
_LONGEST_SECONDS = 5.0
_FORGET_SECONDS = 600.0
_BUCKETS_AT_ONCE = 100
_BATCH_SIZE = 10_000


class AnswerScoring:
    """The state that outlives a pass: the end of its rest, when old sums are deleted, and which tasks failed."""

    def __init__(self, engine: Engine, stopping: threading.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._rest_until = 0.0
        self._forget_at = 0.0
        self._failed: set[tuple[str, str]] = set()

    def tick(self, now: datetime) -> None:
        """Make a pass unless the job still rests. After an outage a later pass goes on."""
        began = time.monotonic()
        if began < self._rest_until:
            return
        try:
            self.score_touched(now)
            if began >= self._forget_at:
                self.forget(now)
                self._forget_at = began + _FORGET_SECONDS
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise
        self._rest_until = time.monotonic() + max(PAUSE_SECONDS, REST_FACTOR * (time.monotonic() - began))

    def score_touched(self, now: datetime) -> int:
        """Score what has changed, some of it if there is much; returns how many parts of the log were read.

        Raises SQLAlchemyError if the store does not answer.
        """
        with self._engine.connect() as connection:
            task_ids = list_touched_tasks(connection)
            schemas, _ = read_tasks(connection, task_ids) if task_ids else ([], {})
        num_read = 0
        for schema in schemas:
            if self._stopping.is_set():
                break
            try:
                with self._engine.begin() as connection:
                    num_read += self._score_task(connection, schema, now)
                self._failed = {one for one in self._failed if one[0] != schema.task.name}
            except Exception as error:  # a bug in one task must not stop the others
                if name_outage(error) is not None and not is_locked(error):
                    raise
                self._note_failure(schema, error)
        return num_read

    def _score_task(self, connection: Connection, schema: Schema, now: datetime) -> int:
        if not lock_scoring(connection, schema.task_id):
            return 0
        clock_of = cache(partial(_find_clock, connection, schema))
        began, num_read = time.monotonic(), 0
        changed: set[Key] = set()
        for touched in list_touched(connection, schema.task_id, _BUCKETS_AT_ONCE):
            rows = read_labelled(connection, schema.task_id, touched.bucket)
            found = score_answers(rows, clock_of)
            changed |= replace_sums(connection, schema.task_id, touched.bucket, found)
            delete_notes(connection, touched)
            num_read += 1
            if self._stopping.is_set() or time.monotonic() - began > _LONGEST_SECONDS:
                break
        measure_again(connection, schema.task_id, changed, now)
        return num_read

    def forget(self, now: datetime) -> None:
        """Delete sums of answers that are no longer in the log. Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            schemas, _ = read_tasks(connection)
        for schema in schemas:
            oldest = (now - timedelta(days=schema.task.log.days)).replace(hour=0, minute=0, second=0, microsecond=0)
            num_gone = _BATCH_SIZE
            while num_gone == _BATCH_SIZE and not self._stopping.is_set():
                with self._engine.begin() as connection:
                    if not lock_scoring(connection, schema.task_id):
                        break
                    num_gone, changed = delete_sums_before(connection, schema.task_id, bucket_at(oldest), _BATCH_SIZE)
                    measure_again(connection, schema.task_id, changed, now)

    def _note_failure(self, schema: Schema, error: Exception) -> None:
        failure = schema.task.name, type(error).__name__
        if failure not in self._failed:
            log.error("answers.failed", task=schema.task.name, exc_info=error)
        self._failed.add(failure)


def _find_clock(connection: Connection, schema: Schema, version: str) -> Clock:
    """How the task divided time when a version was released; as it does now if the version has no such row."""
    released = list_readable_releases(
        connection, schema.task_id, version=version, actions=["release"], limit=1, with_calibration=False
    )
    for row in released.rows:
        if row.matrix is not None and row.matrix.cutoff is not None and row.matrix.horizon:
            cutoff = to_micros(row.matrix.cutoff)
            window = (row.valid_until - cutoff) // row.matrix.horizon
            return replace(schema.task.clock, window=window, offset=cutoff % window)
    return schema.task.clock
