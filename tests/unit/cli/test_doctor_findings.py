"""Where `morrow doctor` draws its lines."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from cli.doctor.database import judge_keys
from cli.doctor.finding import Level, judge_skew
from cli.doctor.machine import GIB, examine_copies, examine_permissions, judge_space
from cli.doctor.registry import judge_version
from cli.local.stack_file import StackUrls, read_stack_file, stack_file
from service.models.local_copies import Current, write_current
from service.settings import ServiceSettings
from tests.integration.artefacts import CUTOFF, write_version


@pytest.mark.parametrize(
    ("seconds", "level"), [(0.4, "ok"), (-3, "ok"), (3.1, "warn"), (-30, "warn"), (30.1, "fail"), (-86_400, "fail")]
)
def test_clocks_may_differ_by_seconds_only(seconds: float, level: Level) -> None:
    finding = judge_skew("its clock", timedelta(seconds=seconds))
    assert finding.level == level
    assert finding.words.endswith("s ahead of this machine's" if seconds > 0 else "s behind this machine's")
    assert (finding.remedy is None) == (level == "ok")


@pytest.mark.parametrize(("free", "level"), [(6 * GIB, "ok"), (4 * GIB, "warn"), (GIB // 4, "fail")])
def test_a_disk_that_fills_up_is_told_of_in_time(free: int, level: Level) -> None:
    assert judge_space(Path("/home"), free).level == level


def test_a_home_that_anyone_may_write_to_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert examine_permissions(tmp_path).level == "ok"
    tmp_path.chmod(0o777)
    finding = examine_permissions(tmp_path)
    assert (finding.level, finding.remedy) == ("fail", f"chmod o-w {tmp_path}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_we_may_not_write_to_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert examine_permissions(tmp_path).level == "fail"


def test_a_copy_whose_bytes_changed_fails_and_says_what_to_remove(tmp_path: Path) -> None:
    folder = write_version(tmp_path / "flights" / "7")
    write_current(tmp_path / "flights", Current("7", CUTOFF))
    assert [finding.level for finding in examine_copies(tmp_path)] == ["ok"]
    with (folder / "model.onnx").open("ab") as file:
        file.write(b"\0")
    (finding,) = examine_copies(tmp_path)
    assert (finding.subject, finding.level) == ("copy flights", "fail")
    assert "model.onnx has another checksum" in finding.words
    assert str(folder) in str(finding.remedy)


def test_without_keys_only_an_api_that_others_reach_fails() -> None:
    here, there = ServiceSettings(host="127.0.0.1"), ServiceSettings(host="0.0.0.0")
    assert judge_keys(0, here).level == "ok"
    assert judge_keys(0, there).level == "fail"
    assert judge_keys(0, there.model_copy(update={"allow_anonymous": True})).level == "warn"
    assert judge_keys(1, there).level == "ok"


def test_another_version_of_mlflow_is_a_warning() -> None:
    assert judge_version("http://mlflow:5000", "3.17.2", "3.17.2").level == "ok"
    finding = judge_version("http://mlflow:5000", "3.16.0", "3.17.2")
    assert (finding.level, finding.remedy) == ("warn", "run mlflow==3.17.2")


def test_a_stack_is_found_by_its_home_while_it_runs(tmp_path: Path) -> None:
    addresses = StackUrls("http://127.0.0.1:1", "http://127.0.0.1:2")
    with stack_file(tmp_path, addresses):
        assert read_stack_file(tmp_path) == addresses
    assert read_stack_file(tmp_path) is None
