"""What `morrow up` does about a first start that ended too early."""

import os
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cli.doctor.registry import examine_first_start
from cli.errors import ChildDied
from cli.local.mlflow_server import remove_unfinished
from cli.local.processes import start_child


def make_database(folder: Path, *statements: str) -> Path:
    folder.mkdir()
    file = folder / "mlflow.db"
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)
    return file


@pytest.mark.parametrize(
    "statements",
    [(), ("CREATE TABLE runs (id)",), ("CREATE TABLE experiments (id)", "CREATE TABLE registered_models (name)")],
)
def test_a_database_of_mlflow_without_experiments_is_built_anew_and_named(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    file = make_database(tmp_path / "mlflow", *statements)
    (finding,) = examine_first_start(tmp_path)
    assert (finding.level, str(file) in finding.words) == ("warn", True)
    assert remove_unfinished(tmp_path / "mlflow")
    assert not file.exists()
    assert not remove_unfinished(tmp_path / "mlflow")


def test_a_database_with_experiments_or_models_and_a_file_of_another_kind_stay(tmp_path: Path) -> None:
    for number, table in enumerate(("experiments", "registered_models")):
        home = tmp_path / str(number)
        home.mkdir()
        file = make_database(home / "mlflow", f"CREATE TABLE {table} (id)", f"INSERT INTO {table} VALUES (0)")  # noqa: S608 our own names
        assert not remove_unfinished(home / "mlflow")
        assert (file.exists(), [*examine_first_start(home)]) == (True, [])
    other = tmp_path / "mlflow.db"
    other.write_text("no database, but a text that is long enough to be looked at as one" * 20)
    assert not remove_unfinished(tmp_path)
    assert other.exists()


def test_a_part_whose_port_was_taken_says_so_instead_of_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("[Errno 98] address already in use: of a start long ago\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        script = (
            "import socket, sys, traceback\n"
            "try:\n"
            f"    socket.socket().bind(('127.0.0.1', {port}))\n"
            "except OSError as error:\n"
            "    print(f'ERROR: {error}', flush=True)\n"
            "print('Application shutdown complete.', flush=True)\n"
            "sys.exit(1)\n"
        )
        child = start_child("API", [sys.executable, "-c", script], os.environ, log)
        child.process.wait(30)
        with pytest.raises(ChildDied, match=r"API ended with status 1: ERROR: .*ddress already in use") as died:
            child.check()
    child.stop()
    assert "MORROW_PORT=" in str(died.value)
    quiet = start_child("API", [sys.executable, "-c", "print('of this start')"], os.environ, log)
    quiet.process.wait(30)
    with pytest.raises(ChildDied, match="API ended with status 0: of this start"):
        quiet.check()
    quiet.stop()
