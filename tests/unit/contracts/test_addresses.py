"""Addresses of stores: their spellings, and passwords, which come from files and are never shown."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import make_url

from contracts.runtime.addresses import read_database_url, read_http_address, split_credentials, with_password
from contracts.runtime.settings import SharedSettings

DATABASE = "postgresql+psycopg://morrow@postgres:5432/morrow"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("it's 100% @/: ok\n")
    return file


def test_the_database_is_opened_with_the_password_of_the_file(secret: Path) -> None:
    url = make_url(with_password(DATABASE, secret))
    assert (url.username, url.password, url.host, url.port, url.database) == (
        "morrow",
        "it's 100% @/: ok",
        "postgres",
        5432,
        "morrow",
    )


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_every_password_comes_out_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, password: str) -> None:
    file = tmp_path_factory.mktemp("secret") / "password"
    file.write_text(password, encoding="utf-8")
    for address in ("http://me@mlflow:5000/below", "http://me:former@mlflow:5000/below"):
        assert split_credentials(with_password(address, file)) == ("http://mlflow:5000/below", ("me", password))


def test_an_address_without_a_user_stays_as_it_is() -> None:
    assert split_credentials("http://mlflow:5000") == ("http://mlflow:5000", None)


def test_settings_read_passwords_from_their_files(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", DATABASE)
    monkeypatch.setenv("MORROW_DATABASE_PASSWORD_FILE", str(secret))
    monkeypatch.setenv("MORROW_MLFLOW_URL", "http://admin@mlflow:5000")
    monkeypatch.setenv("MORROW_MLFLOW_PASSWORD_FILE", str(secret))
    settings = SharedSettings()
    assert settings.database_url == with_password(DATABASE, secret)
    assert split_credentials(settings.mlflow_url or "")[1] == ("admin", "it's 100% @/: ok")
    # A process hands its settings to a child, which builds them again.
    assert SharedSettings(**settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("content", "address", "reason"),
    [
        (None, DATABASE, "cannot be read: No such file or directory"),
        (b"\n", DATABASE, "is empty"),
        (b"\xff\xfe", DATABASE, "cannot be read: not text"),
        (b"secret", "postgresql+psycopg://postgres:5432/morrow", "needs a user"),
    ],
)
def test_a_password_that_cannot_be_had_is_said(
    content: bytes | None, address: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValidationError, match=reason):
        SharedSettings(database_url=address, database_password_file=file)


@pytest.mark.parametrize(
    "spelling",
    [
        "postgres://morrow@db:5432/morrow",
        "postgresql://morrow@db:5432/morrow",
        "POSTGRESQL://morrow@db:5432/morrow",
        "postgresql+psycopg://morrow@db:5432/morrow",
        '"postgres://morrow@db:5432/morrow"',
        " 'postgresql://morrow@db:5432/morrow' ",
    ],
)
def test_every_usual_spelling_of_a_database_is_read(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", spelling)
    assert SharedSettings().database_url == "postgresql+psycopg://morrow@db:5432/morrow"


def test_several_hosts_and_the_folder_of_a_socket_may_stand_where_libpq_takes_them() -> None:
    url = make_url(read_database_url("postgres://morrow@one:5433,two/morrow?target_session_attrs=read-write"))
    assert (url.host, url.database, url.query["host"]) == (None, "morrow", ("one:5433", "two"))
    assert url.query["target_session_attrs"] == "read-write"
    url = make_url(read_database_url("postgres://morrow@%2Frun%2Fpostgresql/morrow"))
    assert (url.host, url.query["host"]) == (None, "/run/postgresql")


@pytest.mark.parametrize("password", ["50%", "100%zz", "a b", "p@ss", "a#b", "[x]", "%41", "ok"])
def test_characters_of_a_password_that_a_url_cannot_hold_are_quoted(password: str) -> None:
    url = make_url(read_database_url(f"postgres://morrow:{password}@db/morrow"))
    assert (url.host, url.password) == ("db", unquote(password))
    assert split_credentials(read_http_address(f"http://me:{password}@mlflow:5000/")) == (
        "http://mlflow:5000",
        ("me", url.password),
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql+asyncpg://morrow:secret@db/morrow", "names the driver 'asyncpg'"),
        ("postgresql+psycopg2://morrow:secret@db/morrow", "names the driver 'psycopg2'"),
        ("mysql://morrow:secret@db/morrow", "stores in PostgreSQL only"),
        ("jdbc:postgresql://db/morrow?password=secret", "stores in PostgreSQL only"),
        ("sqlite:///secret.db", "stores in PostgreSQL only"),
        ("host=db password=secret", "is no URL"),
        ("postgresql:/morrow:secret@db/morrow", "is no URL"),
        ("postgresql://morrow:secret@db:54x2/morrow", "has the port '54x2'"),
        ("postgresql://morrow:secret@db:/morrow", "has the port ''"),
        ("postgresql://morrow:secret@db:99999/morrow", "has the port '99999'"),
        ("postgresql://morrow:secret@d b/morrow", "has a space in its host"),
        ("postgresql://morrow:sec/ret@db/morrow", "write / as %2F"),
        ("postgresql://morrow:sec?ret@db/morrow", "write / as %2F"),
    ],
)
def test_an_address_that_cannot_be_a_database_is_refused_in_a_sentence_without_its_password(
    url: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_database_url(url)
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost:5000", "write http://localhost:5000"),
        ("databricks", "has no scheme"),
        ("sqlite:///mlflow.db", "only http:// and https://"),
        ("http://", "names no host"),
        ("http://mlflow:50x0", "has the port '50x0'"),
        ("http://me:sec/ret@mlflow", "write / as %2F"),
    ],
)
def test_an_address_that_no_client_can_ask_is_refused_in_a_sentence(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_http_address(address)


def test_an_address_of_a_server_loses_the_slash_at_its_end() -> None:
    assert read_http_address("HTTPS://mlflow.example/below/") == "https://mlflow.example/below"
    assert read_http_address("http://[::1]:5000") == "http://[::1]:5000"
