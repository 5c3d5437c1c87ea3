"""What cannot be read as a request is counted among the refusals, like every other refused request."""

from service.metrics import NO_ROUTE, Metrics
from service.web.access_log import AccessLog
from service.web.answered_requests import AnsweredRequests


def test_a_request_that_cannot_be_read_is_counted() -> None:
    metrics = Metrics()
    answered = AnsweredRequests(metrics, AccessLog("off", lambda: []))
    answered.note_unread(400, "/problems/malformed", "This is not a request of HTTP/1.1.")
    labels = {"method": "other", "route": NO_ROUTE, "status": "400"}
    assert metrics.registry.get_sample_value("morrow_requests_total", labels) == 1
