"""What a steady cycle of a small task asks of MLflow and PostgreSQL: counts that must not grow unnoticed.

A fit of half a second is not worth a cycle that asks hundreds of times. A change that needs one more request or
statement raises the count here, and says why.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tests.integration.drifting_task import claim, cutoff_after, cycles_of, define, drifting_task, settings
from tests.integration.statements import counting_statements
from tests.integration.watched_registry import overheard
from trainer.scheduling.workers import worker
from trainer.scheduling.workers.jobs import RunCycle
from trainer.scheduling.workers.orphaned_runs import Settled
from trainer.tracking import run_buffer

# Three of them are for withdrawn rows and garbled ones: what was retracted, which cells count, and a calibration that
# is read apart from its bound. One finds the files of sealed events.
MOST_STATEMENTS = 35
MOST_TRANSACTIONS = 25
# Files are the parts of a version, what is read back of it and of the champion, and the pictures of the run.
MOST_REQUESTS = {"runs": 8, "models": 9, "experiments": 1, "files": 24}
_KINDS = {
    "files": re.compile(r"/mlflow-artifacts/"),
    "runs": re.compile(r"/mlflow/runs/"),
    "models": re.compile(r"/mlflow/(registered-models|model-versions|logged-models)"),
    "experiments": re.compile(r"/mlflow/experiments/"),
}


@pytest.fixture(autouse=True)
def _one_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is sent at its end only: how often before depends on the machine."""
    monkeypatch.setattr(run_buffer, "_PAUSE_SECONDS", 3600.0)


@contextmanager
def counting_transactions(engine: Engine) -> Iterator[list[None]]:
    found: list[None] = []

    def note(_connection: object) -> None:
        found.append(None)

    event.listen(engine, "begin", note)
    try:
        yield found
    finally:
        event.remove(engine, "begin", note)


def kind_of(path: str) -> str:
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(path)), path)


def test_a_steady_cycle_asks_mlflow_and_the_database_no_more_often_than_it_did(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, settled = define(engine, drifting_task(), 14), Settled()
    heard: Counter[str] = Counter()
    with overheard(mlflow_url, lambda _method, path: heard.update([kind_of(path)])) as url:
        given = settings(tmp_path, database_url=database_url, mlflow_url=url)

        for num_windows in (10, 11, 12, 13):
            job = RunCycle(claim(engine, schema, cutoff_after(num_windows)), schema.task.name)
            heard.clear()
            with counting_statements(engine) as statements, counting_transactions(engine) as transactions:
                assert worker._run(engine, job, given, url, settled) == "released"
    assert {cycle.state for cycle in cycles_of(engine, schema)} == {"released"}
    assert set(heard) <= set(MOST_REQUESTS)
    assert {kind: count for kind, count in heard.items() if count > MOST_REQUESTS[kind]} == {}, heard
    assert len(statements) <= MOST_STATEMENTS, "\n".join(statements)
    assert len(transactions) <= MOST_TRANSACTIONS
