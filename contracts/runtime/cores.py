"""The number of CPU cores that this process may use, which sizes the threads of API and trainer.

A container that is limited to two of 64 cores sees all of them, and 64 threads then take turns on two cores. The limit
is a quota of the control group: `cpu.max` in version 2, `cpu.cfs_quota_us` in version 1. Groups above it and the
process's affinity (the set of cores that it may run on) can limit it further.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def count_cores() -> float:
    """Cores of this process, perhaps a fraction of one: the smallest of its affinity and its groups' quotas."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(affinity), *list_quotas(_read(_GROUPS) or "", _ROOT)])


def share_cores(cores: float, num_workers: int) -> int:
    """Whole cores for each of `num_workers` processes, at least 1."""
    return max(1, int(cores / num_workers))


def list_quotas(groups: str, root: Path) -> list[float]:
    """The quotas, in cores, of the groups that `/proc/self/cgroup` names, and of all groups above them.

    In a container the file may name the group as the host sees it, which does not exist below `root` there. A missing
    group sets no limit, and `root` itself is then the container's own group.
    """
    quotas = []
    for line in groups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0" and not controllers:
            for mount in (root, root / "unified"):
                quotas += [_read_max(folder / "cpu.max") for folder in _climb(mount, group)]
        elif "cpu" in controllers.split(","):
            for mount in {root / "cpu", root / controllers}:
                quotas += [_read_cfs(folder) for folder in _climb(mount, group)]
    return [quota for quota in quotas if quota is not None]


def _climb(mount: Path, group: str) -> Iterator[Path]:
    """The folder of a group, and of each above it up to the root of its hierarchy."""
    path = PurePosixPath(group.lstrip("/"))
    for part in (path, *path.parents):
        yield mount / part


def _read_max(file: Path) -> float | None:
    """Read `cpu.max`: `200000 100000` is two cores, `max 100000` no limit."""
    return _divide(*(_read(file) or "").split()[:2])


def _read_cfs(folder: Path) -> float | None:
    """Read a group's quota of version 1; -1 is no limit."""
    return _divide(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _divide(quota: str | None = None, period: str | None = None) -> float | None:
    try:
        cores = int(quota or "") / int(period or "")
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
