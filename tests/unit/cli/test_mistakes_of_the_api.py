"""What a command says if the API made a mistake: where the log is that holds the error."""

from pathlib import Path

import httpx
import pytest

from cli.client.api import ask
from cli.errors import Refused

PROBLEM = {"type": "/problems/internal", "title": "Morrow made a mistake", "detail": "The error is in the log."}


def say(status: int) -> str:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json=PROBLEM, headers={"content-type": "application/problem+json"})

    api = httpx.Client(base_url="http://api", transport=httpx.MockTransport(answer))
    with api, pytest.raises(Refused) as caught:
        ask(api, "GET", "/tasks")
    return str(caught.value)


def test_the_log_of_a_local_stack_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MORROW_HOME", str(tmp_path))
    log = tmp_path / "logs" / "api.log"
    log.parent.mkdir()
    log.touch()
    assert say(500) == (f"The error is in the log. (500)\nThe log of the API that `morrow up` started here is {log}.")


def test_elsewhere_it_is_the_output_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MORROW_HOME", str(tmp_path))
    assert say(500).endswith("`docker compose logs api` shows it with compose.")


def test_a_refusal_names_no_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MORROW_HOME", str(tmp_path))
    assert "log of" not in say(409)
    assert "docker" not in say(503)
