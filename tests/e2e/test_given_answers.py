"""The real trainer scores logged answers as labels come; killed -9, it counts nothing twice and misses nothing."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine

from store.labels.late_labels import Label, append_labels
from store.predictions.answer_scores import list_scored_answers
from tests.e2e.processes import impatient_environment, process, wait_for
from tests.integration.published_versions import define
from tests.integration.store.test_touched_buckets import log as log_answers


def test_a_trainer_that_is_killed_leaves_the_rest_to_the_next_one(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
    output, schema = tmp_path / "log", define(engine)
    now = datetime.now(UTC)

    def counts() -> tuple[int, int]:
        with engine.connect() as connection:
            found = list_scored_answers(connection, schema.task_id)
        return sum(one.quality.num_answers for one in found), sum(one.quality.num_labelled for one in found)

    def send_label(prediction_id: str) -> None:
        with engine.begin() as connection:
            # It waits for some seconds if the trainer makes the partition of today at this moment.
            assert append_labels(connection, [schema], [Label(prediction_id, "late")], now)[0] in ("joined", "waiting")

    first, second = log_answers(engine, schema, now, now)
    with process("trainer", environment, output) as trainer:
        wait_for("the first answers", lambda: counts() == (2, 0), output)
        send_label(first)
        wait_for("their first label", lambda: counts() == (2, 1), output)
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
    send_label(second)
    log_answers(engine, schema, now)
    with process("trainer", environment, output):
        wait_for("the rest", lambda: counts() == (3, 2), output)
