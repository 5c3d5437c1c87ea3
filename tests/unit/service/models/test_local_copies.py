"""What is kept of the version that answers and of the one before it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contracts.calibration import AgeQuantiles, Calibration
from service.models.local_copies import (
    CURRENT_FILE,
    Current,
    lock_folder,
    next_current,
    read_current,
    save_overlay,
    update_overlay,
    write_current,
)
from store.releases import Overlay

FIRST, SECOND = Overlay(10, None), Overlay(20, Calibration(1.0, [AgeQuantiles(0, 50, [1.5, 2.5])]))
THIRD = Overlay(30, None)


def test_both_versions_are_read_back_with_their_overlays(tmp_path: Path) -> None:
    current = next_current(None, ("1", FIRST), "2", SECOND)
    write_current(tmp_path, current)
    assert read_current(tmp_path) == current
    assert current.overlays == {"2": SECOND, "1": FIRST}


def test_a_file_of_before_overlays_still_says_the_bound_and_trusts_no_previous_version(tmp_path: Path) -> None:
    (tmp_path / CURRENT_FILE).write_text(json.dumps({"version": "4", "valid_until": 7, "previous": "3"}))
    current = read_current(tmp_path)
    assert current is not None
    assert current.previous == "3"
    assert current.overlays == {"4": Overlay(7, None)}


def test_the_previous_version_is_the_one_that_has_answered() -> None:
    former = next_current(None, ("1", FIRST), "2", SECOND)
    assert next_current(former, ("2", SECOND), "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    # Version 2 was damaged: the one before it has answered in its place.
    assert next_current(former, ("1", FIRST), "3", THIRD).overlays == {"3": THIRD, "1": FIRST}
    assert next_current(former, ("1", FIRST), "2", SECOND) == former
    # Nothing has answered: what is known stays.
    assert next_current(former, None, "2", SECOND) == former
    assert next_current(former, None, "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    assert next_current(None, None, "1", FIRST) == Current("1", 10)


def test_what_another_worker_has_written_down_stays() -> None:
    written = next_current(None, ("2", SECOND), "3", THIRD)
    # This worker still answers with a version of before both.
    assert next_current(written, ("1", FIRST), "3", THIRD) == written
    assert next_current(written, None, "3", THIRD) == written


def test_a_folder_is_held_by_one_at_a_time_and_let_go_when_its_holder_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "flights"
    program = "import sys; from pathlib import Path; from service.models.local_copies import lock_folder"
    program += "\nwith lock_folder(Path(sys.argv[1])) as is_held:"
    program += "\n    print(is_held, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with lock_folder(folder, 0.1) as is_held:
            assert not is_held
        save_overlay(folder, "2", SECOND)  # waits, and leaves it to the next look
        holder.kill()
    with lock_folder(folder, 0.1) as is_held:
        assert is_held
        with lock_folder(folder, 0.1) as is_held_twice:
            assert not is_held_twice
    with lock_folder(folder, 0.1) as is_held:
        assert is_held


def test_no_overlay_is_lost_while_many_write(tmp_path: Path) -> None:
    write_current(tmp_path, Current("2", 20, "1", None, FIRST))
    newest = {"1": Overlay(50, None), "2": Overlay(60, None)}

    def write(version: str) -> None:
        for bound in range(newest[version].valid_until - 9, newest[version].valid_until + 1):
            save_overlay(tmp_path, version, Overlay(bound, None))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, newest))
    current = read_current(tmp_path)
    assert current is not None
    assert current.overlays == newest


def test_a_newer_overlay_belongs_to_its_version_only() -> None:
    current = next_current(None, ("1", FIRST), "2", SECOND)
    assert update_overlay(current, "2", THIRD).overlays == {"2": THIRD, "1": FIRST}
    assert update_overlay(current, "1", THIRD).overlays == {"2": SECOND, "1": THIRD}
    assert update_overlay(current, "3", THIRD) == current
