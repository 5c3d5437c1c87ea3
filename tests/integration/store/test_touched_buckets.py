"""Which parts of the log are scored again: those whose answers or labels have changed, however they did."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from contracts.clock import to_micros
from store.events.batches import Event, EventBatch
from store.events.imports import add_import, retract_events
from store.events.sealed.sealing import count_sealable
from store.events.writes import append_batch, append_events, correct_event
from store.labels.late_labels import Label, append_labels
from store.predictions.answer_scores import list_scored_answers
from store.predictions.buckets import bucket_of, list_touched, list_touched_tasks
from store.predictions.ids import PredictionIds
from store.predictions.partitions import delete_before, make_partition, partition_of
from store.predictions.rows import write_row, write_source
from store.predictions.writes import store_rows
from store.tasks.catalog import Schema
from tests.integration.erased_events import erase
from tests.integration.published_versions import define
from tests.integration.sealed_tasks import ALL
from trainer.monitoring.answer_scoring import AnswerScoring

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
IDS = PredictionIds()
ANSWER = (
    b'{"prediction":"late","probabilities":{"late":0.75,"on_time":0.25},"expected_error":0.4,"error_name":"log_loss",'
    b'"trained_until":"2026-11-01T00:00:00Z","valid_until":"2026-12-20T00:00:00Z"}'
)
FEATURES = b'{"distance":1.0,"carrier":"UA","wind":null}'


def log(engine: Engine, schema: Schema, *moments: datetime) -> list[str]:
    """Answers that were given at these moments, about the same moment; returns their ids."""
    made = [IDS.make(to_micros(moment)) for moment in moments]
    rows = b"".join(
        write_row(
            one,
            write_source(schema.task_id, "1"),
            to_micros(NOW),
            key_name=None,
            features=FEATURES,
            answer=ANSWER,
        )
        for one in made
    )
    store_rows(engine, rows, len(made), {schema.task_id})
    return [str(UUID(bytes=one)) for one in made]


def an_event(event_id: str, label: str = "late") -> Event:
    return Event(event_id, to_micros(NOW), to_micros(NOW), (1.0, 2.0), ("UA",), label)


def touched(engine: Engine, schema: Schema) -> set[str]:
    with engine.connect() as connection:
        return {one.bucket for one in list_touched(connection, schema.task_id, 1000)}


def score(engine: Engine) -> int:
    return AnswerScoring(engine, threading.Event()).score_touched(NOW)


def counts(engine: Engine, schema: Schema) -> tuple[int, int]:
    """Answers, and those with a label."""
    with engine.connect() as connection:
        found = list_scored_answers(connection, schema.task_id)
    return sum(one.quality.num_answers for one in found), sum(one.quality.num_labelled for one in found)


def bucket(prediction_id: str) -> str:
    return bucket_of(UUID(prediction_id))


def test_answers_that_are_stored_late_are_counted_in_their_own_time(engine: Engine) -> None:
    schema = define(engine)
    log(engine, schema, NOW)
    score(engine)
    ids = log(engine, schema, NOW - timedelta(hours=9), NOW - timedelta(hours=3), NOW)
    assert touched(engine, schema) == {*map(bucket, ids)}
    assert score(engine) == 3
    assert counts(engine, schema) == (4, 0)


def test_rows_that_are_stored_twice_count_once(engine: Engine) -> None:
    schema = define(engine)
    row = write_row(
        IDS.make(to_micros(NOW)), write_source(schema.task_id, "1"), 0, key_name=None, features=None, answer=ANSWER
    )
    for _ in range(2):
        store_rows(engine, row, 1, {schema.task_id})
    score(engine)
    assert counts(engine, schema) == (1, 0)


def test_events_of_other_ids_touch_nothing(engine: Engine) -> None:
    schema = define(engine)
    ids = ["e1", str(uuid4()), "zzzzzzzz-zzzz-7zzz-8zzz-zzzzzzzzzzzz", "x" * 36, str(uuid4()).upper()]
    with engine.begin() as connection:
        append_events(connection, schema, [an_event(one) for one in ids], NOW)
        assert list_touched_tasks(connection) == []


@pytest.mark.parametrize("way", ["label", "event", "corrected", "retracted", "erased"])
def test_each_way_of_a_label_to_come_change_or_go_is_scored(engine: Engine, way: str) -> None:
    schema = define(engine)
    prediction_id, _ = log(engine, schema, NOW, NOW)
    score(engine)
    changes: dict[str, Callable[[], tuple[int, int]]] = {
        "label": lambda: label(engine, schema, prediction_id),
        "event": lambda: store_event(engine, schema, prediction_id),
        "corrected": lambda: correct(engine, schema, prediction_id),
        "retracted": lambda: retract(engine, schema, prediction_id),
        "erased": lambda: gone(engine, schema, prediction_id),
    }
    expected = changes[way]()
    assert touched(engine, schema) == {bucket(prediction_id)}
    assert score(engine) == 1
    assert counts(engine, schema) == expected
    assert touched(engine, schema) == set()


def label(engine: Engine, schema: Schema, prediction_id: str) -> tuple[int, int]:
    with engine.begin() as connection:
        assert append_labels(connection, [schema], [Label(prediction_id, "late")], NOW) == ["joined"]
    return 2, 1


def store_event(engine: Engine, schema: Schema, prediction_id: str) -> tuple[int, int]:
    with engine.begin() as connection:
        append_events(connection, schema, [an_event(prediction_id)], NOW)
    return 2, 1


def correct(engine: Engine, schema: Schema, prediction_id: str) -> tuple[int, int]:
    store_event(engine, schema, prediction_id)
    score(engine)
    with engine.connect() as connection:
        (before,) = list_scored_answers(connection, schema.task_id)
    with engine.begin() as connection:
        correct_event(connection, schema, an_event(prediction_id, "on_time"), NOW)
    score(engine)
    with engine.connect() as connection:
        (after,) = list_scored_answers(connection, schema.task_id)
    assert (before.quality.error_rate, after.quality.error_rate) == (0.0, 1.0)
    with engine.begin() as connection:
        correct_event(connection, schema, an_event(prediction_id, "late"), NOW)
    return 2, 1


def retract(engine: Engine, schema: Schema, prediction_id: str) -> tuple[int, int]:
    with engine.begin() as connection:
        brought = add_import(connection, schema.task_id, actor="who", source="file", now=NOW)
        append_batch(connection, schema, EventBatch.of([an_event(prediction_id)]), NOW, brought.import_id)
    score(engine)
    assert counts(engine, schema) == (2, 1)
    with engine.begin() as connection:
        retract_events(connection, schema, brought.import_id, actor="who", reason="r", now=NOW)
    return 2, 0


def gone(engine: Engine, schema: Schema, prediction_id: str) -> tuple[int, int]:
    """Without a label, an answer is erased from the log alone."""
    assert erase(engine, schema, prediction_id) == ["erased"]
    return 1, 0


def test_one_process_at_a_time_scores_a_task(engine: Engine) -> None:
    schema = define(engine)
    log(engine, schema, NOW)
    with engine.begin() as other:
        other.execute(
            text("SELECT pg_advisory_xact_lock(hashtext('morrow.answer_scores'), :task_id)"),
            {"task_id": schema.task_id},
        )
        assert score(engine) == 0
    assert score(engine) == 1


def test_what_comes_while_a_part_is_scored_is_scored_later(engine: Engine) -> None:
    schema = define(engine)
    (prediction_id,) = log(engine, schema, NOW)
    with engine.begin() as writer:
        append_events(writer, schema, [an_event(prediction_id)], NOW)
        assert score(engine) == 1
        assert counts(engine, schema) == (1, 0)
    assert score(engine) == 1
    assert counts(engine, schema) == (1, 1)


def test_rows_that_move_to_the_partition_of_their_day_are_scored_again(engine: Engine) -> None:
    """A reader that has planned its query by then does not see them."""
    schema = define(engine)
    (prediction_id,) = log(engine, schema, NOW)
    score(engine)
    with engine.begin() as connection:
        assert make_partition(connection, partition_of(NOW.date())) == 1
    assert touched(engine, schema) == {bucket(prediction_id)}
    score(engine)
    assert counts(engine, schema) == (1, 0)


def test_a_deleted_task_takes_its_figures_along(engine: Engine) -> None:
    schema = define(engine)
    log(engine, schema, NOW)
    score(engine)
    log(engine, schema, NOW)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM predictions"))
        connection.execute(text("DELETE FROM schemas WHERE task_id = :id"), {"id": schema.task_id})
        connection.execute(text("DELETE FROM tasks WHERE id = :id"), {"id": schema.task_id})
        for table in ("touched_buckets", "answer_sums", "answer_quality"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0  # noqa: S608 our own


def test_the_label_of_an_answer_is_sealed_once_the_log_has_dropped_the_answer(engine: Engine) -> None:
    schema = define(engine)
    prediction_id, other = log(engine, schema, NOW, NOW)
    with engine.begin() as connection:
        events = [
            replace(an_event(one), at=to_micros(NOW) - 60 * 86_400_000_000) for one in (prediction_id, "e1", "e2")
        ]
        append_events(connection, schema, [*events, an_event(other)], NOW)
        before = to_micros(NOW)
        assert count_sealable(connection, schema, before, ALL) == 2
        delete_before(connection, schema.task_id, NOW + timedelta(days=1), 10)
        assert count_sealable(connection, schema, before, ALL) == 3
