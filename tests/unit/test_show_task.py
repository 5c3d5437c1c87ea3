"""What `morrow task show` prints: the state and its reasons, and a table that fits 80 columns."""

from typing import Any

from rich.console import Console

from cli.tasks import errors_table, state_facts

STATUS: dict[str, Any] = {
    "state": "closed",
    "closed": {"valid_until": "2026-02-05T00:00:00Z", "actor": "trainer", "reason": "0.9 is above its limit 0.7"},
    "stale": True,
    "stale_reason": "the cycle of 2026-02-05T00:00:00Z was held: suspect",
    "missing_windows": 0,
    "better_method": {"method": "gbdt", "difference": -0.0251},
    "registry": {"state": "ok", "reason": None},
    "champion": {
        "version": "7",
        "trained_until": "2026-01-29T00:00:00Z",
        "valid_until": "2026-02-05T00:00:00Z",
        "horizon": 2,
        "error_name": "mean_absolute_error",
    },
}


def test_a_closed_task_says_what_closed_it_that_it_is_stale_and_what_is_better() -> None:
    facts = dict(state_facts(STATUS))
    assert facts["State"] == "closed, stale"
    assert facts["Closed"] == "at 2026-02-05T00:00:00Z by trainer: 0.9 is above its limit 0.7"
    assert facts["Stale"].endswith("was held: suspect")
    assert facts["Better"] == "gbdt, whose mean error is lower by 0.0251"
    assert facts["Valid"] == "until 2026-02-05T00:00:00Z, a horizon of 2 windows"


def test_a_task_without_a_model_says_how_many_windows_are_missing() -> None:
    nothing = {"state": "no_model", "closed": None, "stale": False, "missing_windows": 1, "better_method": None}
    facts = dict(state_facts({**STATUS, **nothing, "champion": None}))
    assert facts["State"] == "no model"
    assert facts["Needs"] == "1 window more before a horizon can be judged"
    assert facts["Champion"] == "none yet"
    assert "Closed" not in facts


def test_expected_and_realised_errors_fit_80_columns_and_what_is_beyond_its_limit_is_red() -> None:
    promised = {"expected": 1234.5678, "low": 1000.1234, "high": 1.5e7, "limit": 1600.1234}
    errors = [
        {"age": 10, **promised, "realised": 1700.1234, "num_rows": 12_345, "is_complete": True},
        {"age": 11, **promised, "realised": 1300.1234, "num_rows": 345, "is_complete": False},
        {"age": 12, **dict.fromkeys(promised), "realised": None, "num_rows": 0, "is_complete": False},
    ]
    console = Console(width=80, color_system="standard", force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(errors_table({**STATUS, "live_errors": errors}))
    shown = captured.get()
    assert "\x1b[31m1700" in shown
    assert "1300 so far" in shown
    assert "1000 … 1.5e+07" in shown
    assert "\x1b[31m1300" not in shown
    assert "mean absolute error" in shown
