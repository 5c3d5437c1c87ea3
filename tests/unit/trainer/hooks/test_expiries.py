"""What time brings: a version expires soon, or has expired, each once."""

from datetime import UTC, datetime, timedelta

from store.hooks.expiries import EXPIRED, EXPIRING, Bound, Expiry
from trainer.hooks.upkeep import find_expiries

DAY = timedelta(days=1)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def found(valid_until: datetime, *noted: str, set_at: datetime = NOW - 30 * DAY) -> list[Expiry]:
    bound = Bound(7, 1, valid_until, set_at, frozenset(noted))
    return find_expiries([bound], {1: 10 * DAY}, NOW)


def test_a_version_expires_soon_within_the_last_fifth_of_a_window() -> None:
    assert found(NOW + 2 * DAY) == []
    assert found(NOW + DAY) == [Expiry(7, EXPIRING, NOW - DAY)]


def test_a_version_has_expired_after_its_last_moment() -> None:
    assert [one.type for one in found(NOW)] == [EXPIRING]
    assert found(NOW - DAY) == [Expiry(7, EXPIRED, NOW - DAY)]


def test_what_is_noted_is_not_found_again() -> None:
    assert found(NOW + DAY, EXPIRING) == []
    assert found(NOW - DAY, EXPIRING) == [Expiry(7, EXPIRED, NOW - DAY)]
    assert found(NOW - DAY, EXPIRING, EXPIRED) == []


def test_a_bound_in_the_past_has_expired_when_it_was_set() -> None:
    assert found(NOW - 20 * DAY, set_at=NOW - DAY) == [Expiry(7, EXPIRED, NOW - DAY)]


def test_a_task_whose_spec_cannot_be_read_expires_all_the_same() -> None:
    bound = Bound(7, 2, NOW - DAY, NOW - 9 * DAY, frozenset())
    assert find_expiries([bound], {}, NOW) == [Expiry(7, EXPIRED, NOW - DAY)]
