"""How many cores a process may use, read from control groups as Linux writes them."""

import os
from pathlib import Path

import pytest

from contracts.runtime.cores import count_cores, list_quotas, share_cores
from service.settings import ServiceSettings

SECOND = "0::/system.slice/docker-abc.scope"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_quota_of_version_2_is_read_in_cores(tmp_path: Path) -> None:
    write(tmp_path / "system.slice/docker-abc.scope/cpu.max", "250000 100000\n")
    assert list_quotas(SECOND, tmp_path) == [2.5]


def test_the_groups_above_count_too(tmp_path: Path) -> None:
    write(tmp_path / "system.slice/docker-abc.scope/cpu.max", "400000 100000\n")
    write(tmp_path / "system.slice/cpu.max", "150000 50000\n")
    write(tmp_path / "cpu.max", "max 100000\n")
    assert list_quotas(SECOND, tmp_path) == [4.0, 3.0]


def test_inside_a_container_the_root_is_its_own_group(tmp_path: Path) -> None:
    write(tmp_path / "cpu.max", "50000 100000\n")
    assert list_quotas("0::/", tmp_path) == [0.5]
    assert list_quotas(SECOND, tmp_path) == [0.5]


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1_is_read_in_cores(tmp_path: Path, mount: str) -> None:
    write(tmp_path / mount / "docker/abc/cpu.cfs_quota_us", "300000\n")
    write(tmp_path / mount / "docker/abc/cpu.cfs_period_us", "100000\n")
    write(tmp_path / mount / "docker/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / mount / "docker/cpu.cfs_period_us", "100000\n")
    groups = "9:name=systemd:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/"
    assert list_quotas(groups, tmp_path) == [3.0]


@pytest.mark.parametrize("text", ["", "max", "max 100000", "100000", "-1 100000", "100000 0", "many cores"])
def test_what_sets_no_limit_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "cpu.max", text)
    assert list_quotas("0::/", tmp_path) == []
    assert list_quotas(text, tmp_path) == []


def test_this_process_has_cores_and_never_more_than_it_may_run_on() -> None:
    assert 0 < count_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("cores", "workers", "share"), [(2.0, 1, 2), (2.0, 4, 1), (0.5, 1, 1), (9.9, 2, 4), (8, 8, 1)])
def test_workers_share_the_cores(cores: float, workers: int, share: int) -> None:
    assert share_cores(cores, workers) == share


def test_threads_follow_the_workers_unless_they_are_set() -> None:
    cores = count_cores()
    for workers in (1, 2, 64):
        assert ServiceSettings(workers=workers).batch_threads == min(64, share_cores(cores, workers))
    assert ServiceSettings(workers=64, batch_threads=3).batch_threads == 3
    assert ServiceSettings(workers=64, model_threads=2).model_threads == 2
