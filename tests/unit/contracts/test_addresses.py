"""Passwords come from files, stand in the address that settings carry, and leave it again before it is shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import make_url

from contracts.runtime.addresses import split_credentials, with_password
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
