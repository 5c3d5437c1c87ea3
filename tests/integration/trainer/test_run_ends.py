"""The run of a cycle ends as the ledger says, whenever its trainer is stopped or frozen."""

from datetime import timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine

from contracts.failure import Failure, FailureCode
from contracts.verdict import Verdict
from store.cycles.leases import end_cycle, expire_leases
from store.cycles.ledger import Cycle, State
from tests.integration.drifting_task import claim, cutoff_after, cycles_of, define, drifting_task, now, settings
from trainer.retraining.cycle import run_cycle
from trainer.scheduling.workers.orphaned_runs import end_orphans
from trainer.tracking.registry import Registry
from trainer.tracking.runs import RunStatus
from trainer.tracking.tags import CYCLE_TAG, LEASE_TAG, NOTE_TAG, REASON_TAG, STATE_TAG


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_a_trainer_that_is_stopped_right_after_a_release_leaves_a_finished_run(
    engine: Engine,
    registry: Registry,
    mlflow_client: MlflowClient,
    tmp_path: Path,
    interruption: type[BaseException],
) -> None:
    schema = define(engine, drifting_task(), 10)

    def stop(event: str, /, **facts: object) -> None:
        if event == "cycle.ended":
            raise interruption

    cycle = claim(engine, schema, cutoff_after(10))
    if interruption is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=stop)
    else:
        assert run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=stop) == "released"
    (ended,) = cycles_of(engine, schema)
    assert (ended.state, ended.version) == ("released", "1")
    run = mlflow_client.get_run(str(ended.run_id))
    assert (run.info.status, run.data.tags[STATE_TAG], run.data.tags["morrow.version"]) == ("FINISHED", "released", "1")
    assert REASON_TAG not in run.data.tags
    assert "Valid until" in run.data.tags[NOTE_TAG]


def test_a_sweep_corrects_every_run_that_disagrees_with_the_ledger(
    engine: Engine, registry: Registry, mlflow_url: str, mlflow_client: MlflowClient
) -> None:
    schema = define(engine, drifting_task(), 0)
    failure = Failure(FailureCode.CYCLE_ERROR, "It broke.")

    def ended(window: int, state: State) -> Cycle:
        cycle = claim(engine, schema, cutoff_after(window))
        with engine.begin() as connection:
            end_cycle(
                connection,
                cycle,
                state,
                None if state == "released" else failure,
                now(),
                version="1" if state == "released" else None,
                verdict=Verdict(),
            )
        return cycle

    def run(cycle: Cycle, status: RunStatus, state: str, lease: str | None = None) -> str:
        tags = {CYCLE_TAG: str(cycle.cycle_id), LEASE_TAG: lease or str(cycle.lease), STATE_TAG: state}
        run_id = registry.start_run(schema.task.name, "a cycle", tags)
        registry.end_run(run_id, status, None if state == "released" else "The trainer was stopped.")
        return run_id

    released, failed, held = ended(1, "released"), ended(2, "failed"), ended(3, "held")
    wrong = [run(released, "KILLED", "failed"), run(failed, "FINISHED", "released"), run(held, "FAILED", "failed")]
    right = [run(failed, "KILLED", "failed"), run(released, "FINISHED", "released"), run(held, "FINISHED", "held")]
    others = run(released, "KILLED", "failed", lease="of another deployment")
    before = {run_id: mlflow_client.get_run(run_id).to_dictionary() for run_id in (*right, others)}
    end_orphans(engine, mlflow_url)
    found = [mlflow_client.get_run(run_id) for run_id in wrong]
    assert [(one.info.status, one.data.tags[STATE_TAG], one.data.tags.get(REASON_TAG)) for one in found] == [
        ("FINISHED", "released", None),
        ("FAILED", "failed", "It broke."),
        ("FINISHED", "held", "It broke."),
    ]
    assert {run_id: mlflow_client.get_run(run_id).to_dictionary() for run_id in before} == before


def test_a_trainer_that_lost_its_lease_before_it_registers_writes_no_version(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)

    def freeze(event: str, /, **facts: object) -> None:
        if event == "cycle.step" and facts["step"] == "register":
            with engine.begin() as connection:
                expire_leases(connection, now() + timedelta(hours=1))

    cycle = claim(engine, schema, cutoff_after(10))
    assert run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=freeze) is None
    assert mlflow_client.search_model_versions(f"name='{schema.task.name}'") == []
    run = mlflow_client.get_run(str(cycles_of(engine, schema)[0].run_id))
    assert run.info.status == "FAILED"


def test_an_experiment_opens_on_its_runs(registry: Registry, mlflow_client: MlflowClient) -> None:
    for name in ("opened_new", "opened_old"):
        if name == "opened_old":
            mlflow_client.create_experiment(name)
        registry.start_run(name, "a cycle", {})
        experiment = mlflow_client.get_experiment_by_name(name)
        assert experiment is not None
        assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
