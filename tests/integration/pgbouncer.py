"""A real PgBouncer in front of the tests' PostgreSQL; without the Debian package `pgbouncer`, its tests are skipped."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from cli.local.stack import free_port

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
MISSING = "PgBouncer is not installed: apt-get install pgbouncer"


@contextmanager
def pgbouncer(database_url: str, mode: str, *, places: int = 4) -> Iterator[str]:
    """URL of the same database through a pooler that lends `places` sessions of the server, and takes no options."""
    assert PROGRAM is not None
    url, port = make_url(database_url), free_port()
    host, server_port = url.query.get("host") or url.host, url.query.get("port") or url.port or 5432
    folder = Path(tempfile.mkdtemp(prefix="morrow-pooler-"))  # below a test's own folder it could read nothing
    (folder / "users.txt").write_text(f'"{url.username}" "{url.password or ""}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{url.database} = host={host} port={server_port} dbname={url.database}\n"
        "[pgbouncer]\nlisten_addr = 127.0.0.1\nunix_socket_dir =\nauth_type = trust\n"
        f"listen_port = {port}\nauth_file = {folder}/users.txt\npool_mode = {mode}\ndefault_pool_size = {places}\n"
    )
    command = [PROGRAM, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # which it refuses to run as
        # The server's socket is open to root and to its own account.
        owner = Path(str(host)).stat().st_uid if str(host).startswith("/") else pwd.getpwnam("nobody").pw_uid
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner, -1)
        command = ["setpriv", f"--reuid={owner}", "--clear-groups", "--", *command]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
    try:
        _await_port(port, process, folder / "log")
        yield url.set(host="127.0.0.1", port=port).set(query={}).render_as_string(hide_password=False)
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder)


def _await_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())
