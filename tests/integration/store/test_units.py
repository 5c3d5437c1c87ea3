"""The ledger of units: each is carried out by one process at a time, and none waits for a helper that is gone."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from contracts.errors import LeaseLost
from store.cycles.leases import end_cycle
from store.cycles.ledger import Cycle
from store.tasks.catalog import Schema
from store.units import (
    NewUnit,
    UnitRow,
    claim_help,
    claim_own,
    end_unit,
    find_unit,
    give_up_unit,
    list_units,
    record_units,
    renew_units,
)
from tests.integration.drifting_task import claim, cutoff_after, define, drifting_task, now

LEASE = timedelta(seconds=30)
HERE = "home here"
UNITS = [NewUnit("first", {"origins": [1, 2]}), NewUnit("second", {"origins": [3]})]


@pytest.fixture
def schema(engine: Engine) -> Schema:
    return define(engine, drifting_task(), 2)


@pytest.fixture
def cycle(engine: Engine, schema: Schema) -> Cycle:
    found = claim(engine, schema, cutoff_after(2))
    with engine.begin() as connection:
        record_units(connection, found, UNITS, now(), place=HERE)
    return found


def helped(engine: Engine, lease: str = "helper", place: str = HERE, late: timedelta = timedelta(0)) -> UnitRow | None:
    with engine.begin() as connection:
        return claim_help(connection, place, lease, now() + late, LEASE)


def owned(engine: Engine, cycle: Cycle, late: timedelta = timedelta(0)) -> UnitRow | None:
    with engine.begin() as connection:
        return claim_own(connection, cycle, ["first", "second"], now() + late, LEASE)


def test_units_are_claimed_in_order_by_one_process_each(engine: Engine, cycle: Cycle) -> None:
    own, other = owned(engine, cycle), helped(engine)
    assert own is not None
    assert other is not None
    assert (own.digest, own.lease, own.spec) == ("first", cycle.lease, {"origins": [1, 2]})
    assert (other.digest, other.lease, other.attempts) == ("second", "helper", 1)
    assert owned(engine, cycle) is None
    assert helped(engine) is None
    with engine.begin() as connection:
        end_unit(connection, other.unit_id, "helper", b"done", now())
        found = find_unit(connection, other.unit_id)
    assert found is not None
    assert (found.state, found.result) == ("done", b"done")
    assert owned(engine, cycle, late=2 * LEASE) is not None, "the own unit, whose lease has expired"


def test_a_helper_takes_no_unit_of_another_place_or_of_a_cycle_that_has_ended(engine: Engine, cycle: Cycle) -> None:
    assert helped(engine, place="home elsewhere") is None
    with engine.begin() as connection:
        end_cycle(connection, cycle, "held", None, now())
    assert helped(engine) is None


def test_a_unit_that_a_helper_gave_up_is_left_to_its_cycle(engine: Engine, cycle: Cycle) -> None:
    taken = helped(engine)
    assert taken is not None
    with engine.begin() as connection:
        give_up_unit(connection, taken.unit_id, "helper")
    other = helped(engine, "another helper")
    assert other is not None
    assert other.digest == "second"
    own = owned(engine, cycle)
    assert own is not None
    assert (own.digest, own.attempts) == ("first", 2)


def test_a_helper_whose_lease_has_expired_loses_its_unit(engine: Engine, cycle: Cycle) -> None:
    taken = helped(engine)
    assert taken is not None
    with engine.begin() as connection:
        assert renew_units(connection, "helper", now(), LEASE) == 1
        assert renew_units(connection, "helper", now() + 2 * LEASE, LEASE) == 0
    own = owned(engine, cycle, late=2 * LEASE)
    assert own is not None
    assert own.unit_id == taken.unit_id
    with pytest.raises(LeaseLost), engine.begin() as connection:
        end_unit(connection, taken.unit_id, "helper", b"", now())
    with engine.begin() as connection:
        give_up_unit(connection, taken.unit_id, "helper")
    assert owned(engine, cycle) is not None
    assert owned(engine, cycle) is None


def test_a_unit_that_was_done_is_asked_for_again(engine: Engine, cycle: Cycle) -> None:
    own = owned(engine, cycle)
    assert own is not None
    with engine.begin() as connection:
        end_unit(connection, own.unit_id, str(cycle.lease), b"done", now())
        record_units(connection, cycle, UNITS[:1], now(), place=HERE)
        states = [(unit.state, unit.result) for unit in list_units(connection, cycle.cycle_id)]
    assert states == [("requested", None), ("requested", None)]


def test_a_later_cycle_of_the_task_forgets_the_units_of_those_that_have_ended(
    engine: Engine, schema: Schema, cycle: Cycle
) -> None:
    other = claim(engine, define(engine, drifting_task(), 2), cutoff_after(2))
    with engine.begin() as connection:
        record_units(connection, other, UNITS, now(), place=HERE)
        end_cycle(connection, cycle, "held", None, now())
        end_cycle(connection, other, "held", None, now())
    later = claim(engine, schema, cutoff_after(3))
    with engine.begin() as connection:
        record_units(connection, later, UNITS, now(), place=HERE)
        counts = [len(list_units(connection, one.cycle_id)) for one in (cycle, other, later)]
    assert counts == [0, 2, 2]
