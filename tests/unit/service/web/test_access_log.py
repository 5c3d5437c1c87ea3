"""The access log: each answer while there are few, a sample and a count while there are many, and no health checks."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from service.web.access_log import RATE, AccessLog, Mode


def a_scope(path: str = "/predict", query: bytes = b"", **more: Any) -> dict[str, Any]:
    return {"method": "GET", "path": path, "query_string": query, "state": {}, **more}


class _Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_log(mode: Mode, clock: _Clock, *tasks: str) -> AccessLog:
    return AccessLog(mode, lambda: tasks, clock)


def test_a_record_names_status_problem_task_key_and_milliseconds() -> None:
    log = make_log("sampled", _Clock(), "flights", "trains")
    with capture_logs() as records:
        log.note(a_scope(query=b"at=x&task=tra%69ns"), "/predict", 422, "/problems/invalid-input", 0.0123456)
        log.note(a_scope("/tasks/flights", path_params={"task": "flights"}), "/tasks/{task}", 200, None, 0.5)
        log.note(a_scope("/events", state={"morrow.key": "meters"}), "/events", 200, None, 0.001)
    log_level = {"event": "request.answered", "log_level": "info", "method": "GET"}
    assert records == [
        {
            **log_level,
            "route": "/predict",
            "status": 422,
            "problem": "/problems/invalid-input",
            "task": "trains",
            "ms": 12.35,
        },
        {**log_level, "route": "/tasks/{task}", "status": 200, "task": "flights", "ms": 500.0},
        {**log_level, "route": "/events", "status": 200, "key": "meters", "ms": 1.0},
    ]


def test_the_only_task_is_named_if_the_request_leaves_it_out_and_a_path_only_if_no_route_has_it() -> None:
    log = make_log("sampled", _Clock(), "flights")
    with capture_logs() as records:
        log.note(a_scope(), "/predict", 200, None, 0.0)
        log.note(a_scope("/nowhere\n/forged"), "none", 404, "/problems/no-such-path", 0.0)
        log.note_unread(400, "/problems/malformed", "This is not a request of HTTP/1.1.")
    assert records[0]["task"] == "flights"
    assert "path" not in records[0]
    assert (records[1]["path"], records[1].get("task")) == ("/nowhere\n/forged", None)
    assert (records[2]["status"], records[2]["detail"]) == (400, "This is not a request of HTTP/1.1.")


def test_while_busy_a_sample_is_logged_with_the_number_of_others_and_refusals_are_not_drowned() -> None:
    clock = _Clock()
    log = make_log("sampled", clock, "flights")
    with capture_logs() as records:
        for _ in range(1000):
            log.note(a_scope(), "/predict", 200, None, 0.001)
        for _ in range(30):
            log.note(a_scope(), "/predict", 429, "/problems/throttled", 0.001)
        statuses = [record["status"] for record in records]
        assert [statuses.count(200), statuses.count(429)] == [RATE, RATE]
        clock.now += 1.0
        log.note(a_scope(), "/predict", 200, None, 0.001)
        log.note(a_scope(), "/predict", 200, None, 0.001)
        log.note(a_scope(), "/predict", 429, "/problems/throttled", 0.001)
    assert [record.get("num_passed_over") for record in records[-3:]] == [1000 - RATE, None, 30 - RATE]


@pytest.mark.parametrize(("mode", "count"), [("all", 100), ("off", 0)])
def test_all_or_nothing_is_logged_if_a_setting_says_so(mode: Mode, count: int) -> None:
    log = make_log(mode, _Clock(), "flights")
    with capture_logs() as records:
        for _ in range(100):
            log.note(a_scope(), "/predict", 200, None, 0.001)
        if mode == "off":
            log.note_unread(400, "/problems/malformed", "")
    assert len(records) == count


def test_health_checks_scrapes_and_static_files_are_logged_only_if_they_are_refused() -> None:
    log = make_log("all", _Clock())
    with capture_logs() as records:
        for path in ("/livez", "/readyz", "/metrics", "/static/pages.css"):
            log.note(a_scope(path), path, 200, None, 0.0)
        log.note(a_scope("/readyz"), "/readyz", 503, None, 0.0)
    assert [record["status"] for record in records] == [503]
