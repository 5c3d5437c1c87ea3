"""Which keys may call which path."""

import pytest

from service.web.auth import needed_scope


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/events", "ingest"),
        ("PUT", "/events/e1", "ingest"),
        ("POST", "/tasks/t/imports", "ingest"),
        ("POST", "/tasks/t/imports/7/retract", "ingest"),
        ("POST", "/tasks/t/imports/7/other", "admin"),
        ("POST", "/tasks/t/erasures", "admin"),
        ("POST", "/tasks/imports/cycles", "admin"),
        ("GET", "/tasks/t/imports/7", None),
    ],
)
def test_a_key_that_may_import_may_undo_an_import_and_nothing_else(method: str, path: str, scope: str | None) -> None:
    assert needed_scope(method, path) == scope


def test_a_list_of_events_needs_the_scope_that_one_event_needs() -> None:
    assert needed_scope("GET", "/tasks/t/events") == needed_scope("GET", "/events/e1") == "ingest"
