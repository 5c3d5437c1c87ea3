"""From a judged candidate to a served one: the alias moves under the lease, then the release is written down."""

from typing import Any

from sqlalchemy import Connection, text

from contracts.clock import format_moment
from contracts.manifest import Manifest
from store.catalog import lock_task
from store.cycles import State, end_cycle, list_cycles, renew_lease
from store.releases import record_release
from trainer.evaluation.release_gates import Decision, check_overtaken
from trainer.retraining.ledger import Attempt, in_store, run_id
from trainer.tracking.registry import Champion
from trainer.tracking.tags import STATE_TAG, VERDICT_TAG


def move_alias(attempt: Attempt, version: str) -> Decision | None:
    """Let the alias name the version while this cycle is provably ours; returns the rule that a newer cutoff broke.

    The task's row keeps cycles of other cutoffs apart, the cycle's row keeps the lease from running out unseen.
    PostgreSQL ends the transaction of a trainer that stops half-way.
    """
    with attempt.engine.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
        lock_task(connection, attempt.cycle.task_id)
        renew_lease(connection, attempt.cycle, attempt.now(), attempt.lease_time)
        champion = attempt.run.registry.champion(attempt.schema.task.name)
        decision = check_overtaken(newest_released(attempt, connection, champion), attempt.cycle.cutoff)
        if not decision.passed:
            return decision
        attempt.run.registry.move_alias(attempt.schema.task.name, version)
    return None


def release(attempt: Attempt, manifest: Manifest, version: str, verdict: dict[str, Any]) -> State:
    """Write down the release and the verdict it rests on, and end the cycle, both or neither. Raises LeaseLost."""

    def work(connection: Connection) -> None:
        now = attempt.now()
        record_release(
            connection,
            attempt.cycle.task_id,
            version,
            action="release",
            valid_until=manifest.valid_until,
            actor=attempt.cycle.override_actor or "trainer",
            reason=attempt.cycle.override_reason or f"cycle {attempt.cycle.cycle_id}",
            now=now,
            calibration=manifest.calibration,
            verdict=verdict,
        )
        end_cycle(connection, attempt.cycle, "released", None, now, version=version, **run_id(attempt))

    in_store(attempt, work)
    attempt.report("cycle.ended", state="released", version=version, valid_until=format_moment(manifest.valid_until))
    attempt.run.note(tags={STATE_TAG: "released", VERDICT_TAG: "released", "morrow.version": version})
    attempt.run.end("FINISHED", None)
    return "released"


def newest_released(attempt: Attempt, connection: Connection, champion: Champion | None) -> int | None:
    """Newest cutoff that the ledger has released or the alias names; after a kill or a rollback either may be ahead."""
    released = [cycle.cutoff for cycle in list_cycles(connection, attempt.cycle.task_id) if cycle.state == "released"]
    if champion is not None and champion.cutoff is not None:
        released.append(champion.cutoff)
    return max(released, default=None)
