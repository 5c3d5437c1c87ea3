"""What is kept of the version that answers and of the one before it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contracts.calibration import AgeQuantiles, Calibration
from service.models.local_copies import (
    CURRENT_FILE,
    Current,
    hold,
    keep_overlay,
    read_current,
    renew,
    replace_file,
    succeed,
    write_current,
)
from store.releases import Overlay

FIRST, SECOND = Overlay(10, None), Overlay(20, Calibration(1.0, [AgeQuantiles(0, 50, [1.5, 2.5])]))
THIRD = Overlay(30, None)


def test_both_versions_are_read_back_with_their_overlays(tmp_path: Path) -> None:
    current = succeed(None, ("1", FIRST), "2", SECOND)
    write_current(tmp_path, current)
    assert read_current(tmp_path) == current
    assert current.overlays == {"2": SECOND, "1": FIRST}


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    in_the_way = tmp_path / "keys.json" / "folder"
    in_the_way.mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(in_the_way.parent, b"[]")
    with pytest.raises(OSError, match="No such file"):
        replace_file(tmp_path / "nosuch" / "keys.json", b"[]")
    assert [*tmp_path.rglob("*")] == [in_the_way.parent, in_the_way]


def test_a_file_of_before_overlays_still_says_the_bound_and_trusts_no_previous_version(tmp_path: Path) -> None:
    (tmp_path / CURRENT_FILE).write_text(json.dumps({"version": "4", "valid_until": 7, "previous": "3"}))
    current = read_current(tmp_path)
    assert current is not None
    assert current.previous == "3"
    assert current.overlays == {"4": Overlay(7, None)}


def test_the_previous_version_is_the_one_that_has_answered() -> None:
    former = succeed(None, ("1", FIRST), "2", SECOND)
    assert succeed(former, ("2", SECOND), "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    # Version 2 was damaged: the one before it has answered in its place.
    assert succeed(former, ("1", FIRST), "3", THIRD).overlays == {"3": THIRD, "1": FIRST}
    assert succeed(former, ("1", FIRST), "2", SECOND) == former
    # Nothing has answered: what is known stays.
    assert succeed(former, None, "2", SECOND) == former
    assert succeed(former, None, "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    assert succeed(None, None, "1", FIRST) == Current("1", 10)


def test_what_another_worker_has_written_down_stays() -> None:
    written = succeed(None, ("2", SECOND), "3", THIRD)
    # This worker still answers with a version of before both.
    assert succeed(written, ("1", FIRST), "3", THIRD) == written
    assert succeed(written, None, "3", THIRD) == written


def test_a_folder_is_held_by_one_at_a_time_and_let_go_when_its_holder_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "flights"
    program = "import sys; from pathlib import Path; from service.models.local_copies import hold"
    program += "\nwith hold(Path(sys.argv[1])) as is_held:"
    program += "\n    print(is_held, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with hold(folder, 0.1) as is_held:
            assert not is_held
        keep_overlay(folder, "2", SECOND)  # waits, and leaves it to the next look
        holder.kill()
    with hold(folder, 0.1) as is_held:
        assert is_held
        with hold(folder, 0.1) as is_held_twice:
            assert not is_held_twice
    with hold(folder, 0.1) as is_held:
        assert is_held


def test_no_overlay_is_lost_while_many_write(tmp_path: Path) -> None:
    write_current(tmp_path, Current("2", 20, "1", None, FIRST))
    newest = {"1": Overlay(50, None), "2": Overlay(60, None)}

    def write(version: str) -> None:
        for bound in range(newest[version].valid_until - 9, newest[version].valid_until + 1):
            keep_overlay(tmp_path, version, Overlay(bound, None))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, newest))
    current = read_current(tmp_path)
    assert current is not None
    assert current.overlays == newest


def test_a_newer_overlay_belongs_to_its_version_only() -> None:
    current = succeed(None, ("1", FIRST), "2", SECOND)
    assert renew(current, "2", THIRD).overlays == {"2": THIRD, "1": FIRST}
    assert renew(current, "1", THIRD).overlays == {"2": SECOND, "1": THIRD}
    assert renew(current, "3", THIRD) == current
