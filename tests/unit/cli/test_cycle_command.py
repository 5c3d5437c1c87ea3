"""What `morrow cycle` says of a cycle that has ended, however early."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.client.wait import describe_queue
from cli.commands.cycle import advise_skipped, describe_end

AGES = [{"age": 0, "mean": 0.31, "reason": None}, {"age": 1, "mean": 0.42, "reason": "it does not beat naive"}]


def ended(state: str, reason: str | None, verdict: dict[str, Any] | None) -> dict[str, Any]:
    return {"cutoff": "2026-01-29T00:00:00Z", "state": state, "version": "3", "reason": reason, "verdict": verdict}


def test_a_released_cycle_shows_its_version_and_every_age_that_was_judged() -> None:
    unjudged = {"age": 2, "mean": None, "reason": "too few windows at this age"}
    verdict = {"error_name": "log_loss", "ages": [*AGES, unjudged]}
    assert describe_end(ended("released", None, verdict)) == [
        "Cycle as of 2026-01-29T00:00:00Z: released as version 3.",
        "  age 0: log_loss 0.3100, valid",
        "  age 1: log_loss 0.4200, it does not beat naive",
    ]


@pytest.mark.parametrize("verdict", [None, {"passed": False, "reason": "too few rows (3)", "decisions": []}])
@pytest.mark.parametrize("state", ["skipped", "failed"])
def test_a_cycle_that_ended_before_a_verdict_on_ages_says_why(state: str, verdict: dict[str, Any] | None) -> None:
    (line,) = describe_end(ended(state, "too few rows (3)", verdict))
    assert line == f"Cycle as of 2026-01-29T00:00:00Z: {state}: too few rows (3)"


def test_a_skipped_cycle_names_the_command_that_stores_more_events() -> None:
    (line,) = advise_skipped(ended("skipped", "too few rows (0 of 100)", None), "demand")
    assert line == "  Send more labelled events: morrow events import demand FILE"
    assert advise_skipped(ended("held", "suspect", None), "demand") == []
    known = "morrow events import demand FILE --map at=when"
    (line,) = advise_skipped(ended("skipped", "too few rows (0 of 100)", None), "demand", known)
    assert line.endswith(known)


def test_windows_that_were_set_aside_are_named() -> None:
    verdict = {"error_name": "mae", "ages": AGES, "aside": ["2026-01-27T00:00:00Z"]}
    lines = describe_end(ended("released", None, verdict))
    assert lines[3].startswith("  1 window of 2026-01-27T00:00:00Z was set aside, because its errors are far above")
    assert lines[3].endswith("the expected error leaves them out; check their labels.")


def test_a_cycle_that_waits_for_another_task_says_for_which_and_how_long_that_has_run() -> None:
    now = datetime(2026, 1, 29, 0, 5, tzinfo=UTC)
    other = {"task": "other", "cutoff": "2026-01-29T00:00:00Z", "step": "fit", "started_at": "2026-01-29T00:01:30Z"}
    assert describe_queue([], now) == "waiting for the trainer"
    said = "waiting for the cycle of other as of 2026-01-29T00:00:00Z, which has run for 3 min"
    assert describe_queue([other], now) == said
    assert describe_queue([other, other], now) == f"{said}, and for 1 more"
    assert describe_queue([{**other, "started_at": "2026-01-29T00:04:30Z"}], now).endswith("has run for 30 s")
