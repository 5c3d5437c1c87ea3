"""`morrow doctor` as typed, over a real database and a real MLflow: what is well, and what is broken on purpose."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cli.local.stack import free_port
from cli.main import app
from migrations import migrate
from store.kept_fits import FitKey, record_fit
from tests.integration.artefacts import publish, write_version
from tests.integration.published_versions import define
from tests.servers import full_server
from tests.standby import primary_and_standby

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def home(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    monkeypatch.setenv("MORROW_HOME", str(folder))
    monkeypatch.setenv("MORROW_URL", NOWHERE)
    monkeypatch.delenv("MORROW_MLFLOW_URL", raising=False)
    return folder


def examine() -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and each finding by its subject."""
    done = CliRunner().invoke(app, ["doctor", "--json"])
    document = json.loads(done.stdout)
    assert document["ok"] == (done.exit_code == 0)
    for finding in document["findings"]:
        assert (finding["remedy"] is None) == (finding["level"] == "ok"), finding
    return done.exit_code, {finding["subject"]: finding for finding in document["findings"]}


def test_what_is_only_not_running_is_a_warning(home: Path) -> None:
    code, found = examine()
    assert code == 0
    levels = {subject: finding["level"] for subject, finding in found.items()}
    assert levels == {
        **{"home": "ok", "disk": levels["disk"], "GPU": "ok", "trainer": "warn"},
        **{"database": "ok", "database's clock": "ok", "connections": "ok"},
        **{"migrations": "ok", "keys": "ok"},
        **{"MLflow": "warn", "API": "warn"},
    }


def test_the_store_of_kept_fits_is_tried_and_fits_of_another_store_are_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setenv("MORROW_FITS_URL", f"file://{tmp_path}/fits")
    code, found = examine()
    assert (code, found["kept fits"]["level"]) == (0, "ok")
    assert [file.name for file in (tmp_path / "fits/fits").iterdir()] == []
    schema = define(engine)
    with engine.begin() as connection:
        record_fit(connection, FitKey("another", schema.task_id, "recipe", 0), "digest", datetime.now(UTC))
    code, found = examine()
    assert (code, found["kept fits"]["level"]) == (0, "warn")
    assert found["kept fits"]["remedy"] == "set the same MORROW_FITS_URL for all trainers"
    (tmp_path / "file").touch()
    monkeypatch.setenv("MORROW_FITS_URL", f"file://{tmp_path}/file/fits")
    code, found = examine()
    assert (code, found["kept fits"]["level"]) == (1, "fail")


def test_a_read_replica_is_compared_with_its_primary(
    home: Path, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with primary_and_standby(tmp_path) as (primary, standby):
        migrate(primary.url)
        monkeypatch.setenv("MORROW_DATABASE_URL", primary.url)
        monkeypatch.setenv("MORROW_READ_DATABASE_URL", standby.url)
        code, found = examine()
        assert (code, found["read replica"]["level"]) == (0, "ok")
        for url, words in (
            (primary.url, "is no standby"),
            (database_url, "is no copy of the primary"),
            (standby.url.replace("morrow@", "nobody_here@"), "has no role nobody_here"),
        ):
            monkeypatch.setenv("MORROW_READ_DATABASE_URL", url)
            code, found = examine()
            assert (code, found["read replica"]["level"]) == (1, "fail")
            assert words in found["read replica"]["words"]
            assert "fits read the primary" in found["read replica"]["remedy"]
    monkeypatch.delenv("MORROW_DATABASE_URL")
    assert examine()[1]["read replica"]["words"] == "MORROW_READ_DATABASE_URL is set, and MORROW_DATABASE_URL is not"


def test_people_read_a_line_each_with_the_remedy_below(home: Path) -> None:
    lines = CliRunner().invoke(app, ["doctor"]).stdout.splitlines()
    place = lines.index(f"warn API: {NOWHERE} does not answer")
    assert lines[place + 1].strip().startswith("→ run `morrow up`")


def test_a_database_without_our_tables_fails(home: Path, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    code, found = examine()
    assert (code, found["migrations"]["level"], found["migrations"]["remedy"]) == (1, "fail", "morrow migrate")
    assert "keys" not in found


def test_a_database_that_does_not_answer_fails_without_its_password(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", f"postgresql+psycopg://morrow:secret@127.0.0.1:{free_port()}/morrow")
    code, found = examine()
    assert (code, found["database"]["level"]) == (1, "fail")
    assert "does not answer" in found["database"]["words"]
    assert "secret" not in str(found)


def test_more_workers_than_the_database_takes_connections_for_are_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORROW_WORKERS", "64")
    monkeypatch.setenv("MORROW_POOL_SIZE", "100")
    code, found = examine()
    assert (code, found["connections"]["level"]) == (0, "warn")
    assert "Morrow may ask for 6410" in found["connections"]["words"]


def test_a_database_that_takes_nobody_more_is_told_from_one_that_is_away(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with full_server(engine) as url:
        monkeypatch.setenv("MORROW_DATABASE_URL", url.render_as_string(hide_password=False))
        code, found = examine()
    assert (code, found["database"]["level"]) == (1, "fail")
    assert "takes no more connections" in found["database"]["words"]
    assert "max_connections" in found["database"]["remedy"]


def test_an_mlflow_that_does_not_answer_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_MLFLOW_URL", f"http://127.0.0.1:{free_port()}")
    code, found = examine()
    assert (code, found["MLflow"]["level"]) == (1, "fail")


def test_a_champion_is_read_back_and_a_damaged_one_fails(
    home: Path, engine: Engine, mlflow_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORROW_MLFLOW_URL", mlflow_url)
    name = f"task_{uuid4().hex[:8]}"
    define(engine, name=name)
    assert examine()[1][f"champion {name}"]["words"] == "none yet"
    folder = write_version(tmp_path / "whole", task=name)
    version = publish(mlflow_url, name, folder)
    code, found = examine()
    assert code == 0
    assert (found["MLflow"]["level"], found["MLflow's clock"]["level"]) == ("ok", "ok")
    assert found[f"champion {name}"]["words"] == f"version {version}: every file matches its manifest"
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    (damaged / "model.onnx").write_bytes((damaged / "model.onnx").read_bytes()[:-100])
    version = publish(mlflow_url, name, damaged)
    code, found = examine()
    assert (code, found[f"champion {name}"]["level"]) == (1, "fail")
    assert f"version {version}: model.onnx has another checksum" in found[f"champion {name}"]["words"]
    assert f"morrow rollback {name}" in found[f"champion {name}"]["remedy"]
