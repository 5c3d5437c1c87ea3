"""Errors of libraries that a command meets become one sentence; a bug keeps its traceback."""

import errno

import httpx
import psycopg
import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from cli.explanation import explain
from contracts.errors import NotFound

MESSAGE = 'connection failed: FATAL:  password authentication failed for user "morrow"'


def test_an_error_of_ours_is_its_own_sentence() -> None:
    assert explain(NotFound("There is no task of this name.")) == "There is no task of this name."


def test_a_refusal_of_the_database_names_it_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", "postgres://morrow:secret@db/morrow")
    sentence = explain(OperationalError("SELECT 1", None, psycopg.OperationalError(MESSAGE))) or ""
    assert "the password of the role morrow" in sentence
    assert "MORROW_DATABASE_PASSWORD_FILE" in sentence
    assert "secret" not in sentence


def test_an_outage_of_the_embedded_database_sends_to_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MORROW_DATABASE_URL", raising=False)
    sentence = explain(OperationalError("SELECT 1", None, psycopg.OperationalError("server closed the connection")))
    assert sentence == "The database does not answer. `morrow doctor` examines it."


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    request = httpx.Request("GET", "http://me:secret@mlflow:5000/x")
    sentence = explain(httpx.ConnectError("refused", request=request)) or ""
    assert sentence.startswith("The server at http://mlflow:5000/x does not answer (refused)")
    assert (explain(httpx.ReadTimeout("late")) or "").startswith("A server does not answer (late)")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_to_is_named(code: int) -> None:
    sentence = explain(OSError(code, "no", "/data/morrow/x")) or ""
    assert sentence.startswith("/data/morrow/x cannot be used (no)")
    assert "MORROW_HOME" in sentence


@pytest.mark.parametrize(
    "bug",
    [
        KeyError("x"),
        OSError(errno.EBADF, "no", "x"),
        ProgrammingError("SELEKT", None, psycopg.errors.SyntaxError("syntax error")),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_a_bug_is_not_explained(bug: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", "postgres://morrow@db/morrow")
    assert explain(bug) is None
