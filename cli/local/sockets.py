"""Where the embedded server's socket lies: a fresh 0700 folder of its account below /tmp, however long the data
directory's path is, and a link to it in the data directory, by which it is found again after a kill.
"""

import os
import shutil
import tempfile
from pathlib import Path

from cli.local.postgres_cluster import Account, unfinished_cluster

_PREFIX = "morrow-"


def make_socket_dir(cluster: Path) -> Path:
    """A fresh folder, and a link to it in the data directory, by which it is found again after a kill."""
    socket_dir = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_socket_root()))
    _socket_link(cluster).symlink_to(socket_dir)
    return socket_dir


def sweep(cluster: Path, account: Account) -> None:
    """Remove what a kill left: half a cluster, a pid file whose pid may be a stranger's by now, and the socket."""
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
    """Whether a folder that the link names is ours to remove."""
    if path.parent != _socket_root() or not path.name.startswith(_PREFIX) or path.is_symlink():
        return False
    return path.is_dir() and path.stat().st_uid in {account.uid, os.geteuid()}


def _socket_root() -> Path:
    """Socket paths end at about 100 bytes, and TMPDIR may be longer, or closed to the server's account."""
    shortest = Path("/tmp")  # noqa: S108 mkdtemp makes the folder below it
    return shortest if os.access(shortest, os.W_OK) else Path(tempfile.gettempdir())
