"""The trainer makes the days of the log ahead, and lets rows go once they are older than their task keeps them."""

import threading
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Engine, text

from contracts.clock import to_micros
from contracts.spec.prediction_log import PredictionLog
from store.predictions.ids import PredictionIds
from store.predictions.partitions import list_partitions
from store.predictions.rows import write_row, write_source
from store.predictions.writes import store_rows
from store.tasks.catalog import Schema
from tests.integration.published_versions import define
from trainer.scheduling.prediction_days import PredictionDays

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)
IDS = PredictionIds()


def log(engine: Engine, schema: Schema, *ages: int) -> None:
    """An answer of each age, in days."""
    for age in ages:
        row = write_row(
            IDS.make(to_micros(NOW - age * DAY)),
            write_source(schema.task_id, "1"),
            0,
            key_name=None,
            features=None,
            answer=b"{}",
        )
        store_rows(engine, row, 1, {schema.task_id})


def days_left(engine: Engine, schema: Schema) -> list[int]:
    """The ages of a task's rows."""
    query = text("SELECT id FROM predictions WHERE task_id = :task_id ORDER BY id DESC")
    with engine.connect() as connection:
        found = connection.execute(query, {"task_id": schema.task_id}).scalars().all()
    return [(NOW.date() - datetime.fromtimestamp((one.int >> 80) / 1000, UTC).date()).days for one in found]


def days_of(engine: Engine) -> list[date]:
    with engine.connect() as connection:
        return [one.day for one in list_partitions(connection)]


def upkeep(engine: Engine, now: datetime = NOW) -> None:
    PredictionDays(engine, threading.Event()).tick(now)


def test_today_and_two_days_ahead_have_partitions(engine: Engine) -> None:
    upkeep(engine)
    assert days_of(engine) == [date(2026, 11, 30), date(2026, 12, 1), date(2026, 12, 2)]
    upkeep(engine, NOW + DAY)
    assert days_of(engine)[-1] == date(2026, 12, 3)


def test_a_day_that_is_too_old_for_every_task_is_dropped(engine: Engine) -> None:
    schema = define(engine)
    log(engine, schema, 0, 29, 30, 31, 40)
    upkeep(engine)
    assert days_left(engine, schema) == [0, 29, 30]
    assert min(days_of(engine)) == (NOW - 30 * DAY).date()


def test_a_task_that_keeps_its_rows_for_fewer_days_loses_them_earlier(engine: Engine) -> None:
    brief, usual = define(engine, log={"days": 2}), define(engine)
    for schema in (brief, usual):
        log(engine, schema, 0, 1, 2, 3, 29)
    upkeep(engine)
    assert days_left(engine, brief) == [0, 1, 2]
    assert days_left(engine, usual) == [0, 1, 2, 3, 29]


def test_a_backup_that_reads_the_log_delays_the_upkeep_and_nothing_else(engine: Engine) -> None:
    schema = define(engine)
    log(engine, schema, 0, 40)
    upkeep_now = PredictionDays(engine, threading.Event())
    with engine.begin() as reader:
        reader.execute(text("LOCK TABLE predictions_default IN ACCESS SHARE MODE"))
        upkeep_now.tick(NOW)
        log(engine, schema, 0)
    assert days_left(engine, schema) == [0, 0, 40]
    upkeep(engine)
    assert days_left(engine, schema) == [0, 0]


def test_without_a_task_days_are_kept_as_usual(engine: Engine) -> None:
    upkeep(engine, NOW - (PredictionLog().days + 5) * DAY)
    upkeep(engine)
    assert min(days_of(engine)) >= (NOW - (PredictionLog().days + 1) * DAY).date()
