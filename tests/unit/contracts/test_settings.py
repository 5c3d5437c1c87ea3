"""Settings are read as they were meant, and a value that cannot be meant is named with its variable."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from contracts.errors import InvalidInput
from contracts.runtime.entry import as_sentence, exit_with_sentence
from contracts.runtime.settings import SharedSettings
from service.settings import ServiceSettings


def test_a_value_in_quotation_marks_means_what_is_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HOME": '"/data"',
        "WORKERS": "'2'",
        "MLFLOW_URL": '"http://mlflow:5000"',
        "HOST": '""',
    }.items():
        monkeypatch.setenv(f"MORROW_{name}", value)
    settings = ServiceSettings()
    assert (settings.home, settings.workers, settings.mlflow_url) == (Path("/data"), 2, "http://mlflow:5000")
    assert settings.host == "127.0.0.1"


@pytest.mark.parametrize("link", ["tcp://10.0.0.1:8000", "udp://10.0.0.1:53"])
def test_a_service_link_of_kubernetes_is_no_setting(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_PORT", link)
    assert ServiceSettings().port == 8000


@pytest.mark.parametrize("words", ['["docs", "metrics"]', "docs,metrics", " docs, metrics "])
def test_a_list_is_json_or_words_with_commas(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_PUBLIC", words)
    assert ServiceSettings().public == ("docs", "metrics")


def test_a_value_that_cannot_be_read_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", "postgresql+asyncpg://morrow:secret@db/morrow")
    with pytest.raises(ValidationError) as caught:
        SharedSettings()
    assert (as_sentence(caught.value) or "").startswith("MORROW_DATABASE_URL: names the driver 'asyncpg'")
    with pytest.raises(SystemExit) as ended, exit_with_sentence():
        SharedSettings()
    said = capsys.readouterr().err
    assert (ended.value.code, "Traceback" in said, "secret" in said) == (1, False, False)


def test_a_faulty_value_is_shown_and_nothing_that_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_WORKERS", "many")
    with pytest.raises(ValidationError) as caught:
        ServiceSettings()
    sentence = as_sentence(caught.value) or ""
    assert sentence.startswith("MORROW_WORKERS: Input should be a valid integer")
    assert "'many'" in sentence
    assert "\n" not in sentence


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), exit_with_sentence():
        raise ZeroDivisionError


def test_without_any_home_folder_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MORROW_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    with pytest.raises(InvalidInput, match="MORROW_HOME: is not set, and this user has no home folder"):
        SharedSettings()
