"""What is kept of the version that answers and of the one before it."""

import json
from pathlib import Path

from contracts.calibration import AgeQuantiles, Calibration
from contracts.releases import Overlay
from service.copies import CURRENT_FILE, Current, read_current, renew, succeed, write_current

FIRST, SECOND = Overlay(10, None), Overlay(20, Calibration(1.0, [AgeQuantiles(0, 50, [1.5, 2.5])]))
THIRD = Overlay(30, None)


def test_both_versions_are_read_back_with_their_overlays(tmp_path: Path) -> None:
    current = succeed(None, ("1", FIRST), "2", SECOND)
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
    former = succeed(None, ("1", FIRST), "2", SECOND)
    assert succeed(former, ("2", SECOND), "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    # Version 2 was damaged: the one before it has answered in its place.
    assert succeed(former, ("1", FIRST), "3", THIRD).overlays == {"3": THIRD, "1": FIRST}
    assert succeed(former, ("1", FIRST), "2", SECOND) == former
    # Nothing has answered: what is known stays.
    assert succeed(former, None, "2", SECOND) == former
    assert succeed(former, None, "3", THIRD).overlays == {"3": THIRD, "2": SECOND}
    assert succeed(None, None, "1", FIRST) == Current("1", 10)


def test_a_newer_overlay_belongs_to_its_version_only() -> None:
    current = succeed(None, ("1", FIRST), "2", SECOND)
    assert renew(current, "2", THIRD).overlays == {"2": THIRD, "1": FIRST}
    assert renew(current, "1", THIRD).overlays == {"2": SECOND, "1": THIRD}
    assert renew(current, "3", THIRD) == current
