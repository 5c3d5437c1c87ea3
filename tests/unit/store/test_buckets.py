"""Buckets of the log: ids that begin alike."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from contracts.clock import to_micros
from store.predictions.buckets import bucket_at, bucket_of, bucket_of_digits, ids_of
from store.predictions.ids import PredictionIds
from store.predictions.rows import FIRST_DIGITS, write_row, write_source

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
IDS = PredictionIds()


def test_a_bucket_holds_the_ids_of_seventeen_minutes() -> None:
    first, last = ids_of(bucket_at(NOW))
    length = timedelta(milliseconds=2**20)
    for seconds in range(0, 7200, 60):
        prediction_id = UUID(bytes=IDS.make(to_micros(NOW + timedelta(seconds=seconds))))
        inside = first <= prediction_id <= last
        assert inside == (bucket_of(prediction_id) == bucket_at(NOW))
        assert inside or timedelta(seconds=seconds) > timedelta()
    assert bucket_at(NOW + length) > bucket_at(NOW)
    assert ids_of(bucket_at(NOW + length))[0].int == last.int + 1


def test_buckets_sort_by_time() -> None:
    moments = [datetime(year, 1, 1, tzinfo=UTC) for year in range(1970, 2500, 5)]
    assert sorted(map(bucket_at, moments)) == [*map(bucket_at, moments)]


def test_the_bucket_of_a_row_is_read_off_its_first_bytes() -> None:
    made = IDS.make(to_micros(NOW))
    row = write_row(made, write_source(1, "3"), 0, key_name=None, features=None, answer=b"{}")
    assert bucket_of_digits(row[FIRST_DIGITS]) == bucket_of(UUID(bytes=made))
