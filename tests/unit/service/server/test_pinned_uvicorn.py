"""What the service takes from inside uvicorn is still what it was, and uvicorn is pinned exactly.

uvicorn has no public way to answer a request without a task, so `service.server.connection.Connection` overrides the
method that starts one. A new version of uvicorn may be pinned once these tests pass with it.
"""

import inspect
import tomllib
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.server.connection import Connection

ROOT = Path(__file__).parents[4]


def test_uvicorn_is_pinned_exactly() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [one for one in dependencies if one.startswith("uvicorn")] == ["uvicorn[standard]==0.54.0"]


@pytest.mark.parametrize("name", ["_start_asgi_task", "data_received", "on_message_complete", "shutdown"])
def test_an_overridden_method_has_the_parameters_of_uvicorns(name: str) -> None:
    ours, theirs = getattr(Connection, name), getattr(HttpToolsProtocol, name)
    assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]


@pytest.mark.parametrize("name", ["on_headers_complete", "on_response_complete"])
def test_every_request_is_started_by_the_overridden_method(name: str) -> None:
    assert "_start_asgi_task" in getattr(HttpToolsProtocol, name).__code__.co_names


def test_uvicorn_does_no_more_with_data_or_with_a_stop_than_what_is_done_here() -> None:
    received, stopped = (getattr(HttpToolsProtocol, name).__code__.co_names for name in ("data_received", "shutdown"))
    assert {*received} == {
        "_unset_keepalive_if_required",
        "parser",
        "feed_data",
        "httptools",
        "HttpParserError",
        "logger",
        "warning",
        "send_400_response",
        "HttpParserUpgrade",
        "_should_upgrade",
        "handle_websocket_upgrade",
        "_unsupported_upgrade_warning",
    }
    assert {*stopped} == {"cycle", "response_complete", "transport", "close", "keep_alive"}


def test_a_connection_holds_the_timer_of_its_next_request() -> None:
    attributes = {"timeout_keep_alive_task", "timeout_keep_alive"}
    assert attributes <= {*HttpToolsProtocol.__init__.__code__.co_names}


def test_a_cycle_holds_what_is_written_without_a_task() -> None:
    attributes = {"response_started", "response_complete", "disconnected", "keep_alive", "on_response"}
    attributes |= {"default_headers", "message_event", "scope"}
    assert attributes <= {*RequestResponseCycle.__init__.__code__.co_names}
