"""What a sweep of orphaned runs asks of MLflow: as much at many tasks as at few, and nothing if none can be open."""

from sqlalchemy import Engine

from contracts.failure import Failure, FailureCode
from store.cycles.leases import end_cycle
from store.cycles.ledger import Cycle
from store.tasks.catalog import Schema
from tests.integration.drifting_task import claim, cutoff_after, define, drifting_task, now
from tests.integration.watched_registry import overheard
from trainer.scheduling.workers.orphaned_runs import Settled, end_orphans
from trainer.tracking.registry import Registry
from trainer.tracking.tags import CYCLE_TAG, LEASE_TAG


def with_orphan(engine: Engine, registry: Registry) -> tuple[Schema, str]:
    """A task with a failed cycle whose run is still open."""
    schema = define(engine, drifting_task(), 0)
    cycle = claim(engine, schema, cutoff_after(1))
    run_id = registry.start_run(
        schema.task.name, "a cycle", {CYCLE_TAG: str(cycle.cycle_id), LEASE_TAG: str(cycle.lease)}
    )
    with engine.begin() as connection:
        end_cycle(connection, cycle, "failed", Failure(FailureCode.CYCLE_ERROR, "It left a run open."), now())
    return schema, run_id


def count_requests(engine: Engine, url: str, task_id: int | None) -> int:
    requests: list[str] = []
    with overheard(url, lambda method, path: requests.append(f"{method} {path}")) as heard:
        end_orphans(engine, heard, task_id)
    return len(requests)


def test_a_cycle_sweeps_its_own_task_and_idle_time_all_tasks_by_as_many_requests_at_nine_tasks_as_at_three(
    engine: Engine, registry: Registry, mlflow_url: str
) -> None:
    found = [with_orphan(engine, registry) for _ in range(3)]
    end_orphans(engine, mlflow_url, found[0][0].task_id)
    assert registry.open_runs(found[0][0].task.name) == []
    assert [one.run_id for one in registry.open_runs(found[1][0].task.name)] == [found[1][1]]
    end_orphans(engine, mlflow_url)
    assert registry.open_runs(*(schema.task.name for schema, _ in found)) == []
    counts = [count_requests(engine, mlflow_url, found[0][0].task_id), count_requests(engine, mlflow_url, None)]
    for _ in range(6):
        with_orphan(engine, registry)
    end_orphans(engine, mlflow_url)
    assert [count_requests(engine, mlflow_url, found[0][0].task_id), count_requests(engine, mlflow_url, None)] == counts
    assert max(counts) <= 4


def test_a_process_looks_for_open_runs_of_a_task_unless_it_carried_out_its_last_cycle_itself(engine: Engine) -> None:
    schema, settled = define(engine, drifting_task(), 0), Settled()

    def begin(window: int) -> Cycle:
        return claim(engine, schema, cutoff_after(window))

    def end(cycle: Cycle) -> None:
        with engine.begin() as connection:
            end_cycle(connection, cycle, "held", Failure(FailureCode.CYCLE_ERROR, "It has ended."), now())

    for window in (1, 2):
        own = begin(window)
        assert settled.covers(engine, own) is (window == 2)
        end(own)
        settled.note(own, is_settled=True)
    foreign = begin(3)
    end(foreign)
    own = begin(4)
    assert not settled.covers(engine, own)
    end(own)
    settled.note(own, is_settled=False)
    assert not settled.covers(engine, begin(5))
