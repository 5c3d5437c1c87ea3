"""Codes are stored and sentences are read by the release before: neither changes unseen."""

from contracts.failure import LEASE_EXPIRED, REGISTRY_UNREACHABLE, STOPPED, STORE_OUTAGES, FailureCode
from store.outages import _OUTAGES, BUSY


def test_a_trainer_of_the_release_before_knows_an_interruption_by_its_sentence() -> None:
    assert STOPPED.reason == "The trainer was stopped."
    assert LEASE_EXPIRED.reason == "The trainer went away and its lease ran out."
    assert REGISTRY_UNREACHABLE.reason == "The registry does not answer."
    assert {outage.reason for outage in [BUSY, *_OUTAGES.values()]} == {
        "All connections of this process to the database are taken.",
        "The database does not answer.",
        "The database takes no writes.",
        "The database has undone this for the sake of something else.",
        "The database has not got the tables of this version.",
        "The database has no room left.",
        "The database has no memory left.",
        "The database takes no more connections.",
        "The database has reached one of its limits.",
        "The database did not answer in time.",
        "The database's machine has failed it.",
    }


def test_every_outage_of_the_store_has_a_code_of_its_own() -> None:
    outages = {BUSY, *_OUTAGES.values()}
    assert {outage.code for outage in outages} == STORE_OUTAGES
    assert len(outages) == len(STORE_OUTAGES)


def test_a_code_is_stored_in_lower_case_words() -> None:
    assert [code.value for code in FailureCode] == [code.name.lower() for code in FailureCode]
