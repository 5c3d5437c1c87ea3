"""What `morrow task show` prints: the state and its reasons, and a table that fits 80 columns."""

import io
from typing import Any

import pytest
from rich.console import Console

from cli.reports.task import answers_tables, errors_table, skill_table, state_facts, tasks_table

STATUS: dict[str, Any] = {
    "state": "closed",
    "closed": {"valid_until": "2026-02-05T00:00:00Z", "actor": "trainer", "reason": "0.9 is above its limit 0.7"},
    "stale": True,
    "stale_reason": "the cycle of 2026-02-05T00:00:00Z was held: suspect",
    "missing_windows": 0,
    "better_method": {"method": "gbdt", "num_windows": 3, "error": 0.4, "difference": -0.0251},
    "rivals": [{"method": "gbdt", "num_windows": 3, "error": 0.4, "difference": -0.0251}],
    "skill": {
        "error_name": "mean_absolute_error",
        "num_windows": 9,
        "error": 0.41,
        "naive": 0.5,
        "skill": 18.0,
        "rivals": [
            {"method": "gbdt", "num_windows": 3, "error": 0.3749, "ours": 0.4, "skill": -6.695},
            {"method": "baseline", "num_windows": 1, "error": 0.41, "ours": 0.4, "skill": 2.439},
        ],
        "compared": [
            {"method": "naive", "num_windows": 3, "error": 0.52, "ours": 0.4, "skill": 23.08},
            {"method": "gbdt", "num_windows": 3, "error": 0.3749, "ours": 0.4, "skill": -6.695},
        ],
        "advice": ["gbdt has an error that is 6 % smaller: set training.tune = true"],
    },
    "override": None,
    "choice": None,
    "registry": {"state": "ok", "reason": None},
    "champion": {
        "version": "7",
        "trained_until": "2026-01-29T00:00:00Z",
        "valid_until": "2026-02-05T00:00:00Z",
        "horizon": 2,
        "batch_size": 1024,
        "error_name": "mean_absolute_error",
    },
}


def test_a_closed_task_says_what_closed_it_that_it_is_stale_and_what_is_better() -> None:
    facts = dict(state_facts(STATUS))
    assert facts["State"] == "closed, stale"
    assert facts["Closed"] == "at 2026-02-05T00:00:00Z by trainer: 0.9 is above its limit 0.7"
    assert facts["Stale"].endswith("was held: suspect")
    assert facts["Skill"] == "18 % better than naive on 9 windows; 7 % worse than gbdt, the best rival, on 3 windows"
    assert facts["Try"] == "gbdt has an error that is 6 % smaller: set training.tune = true"
    assert facts["Training"] == "1,024 rows at a time"
    assert facts["Valid"] == (
        "until 2026-02-05T00:00:00Z, since an error above its limit closed the horizon; a horizon of 2 windows was "
        "promised at the release"
    )


def test_a_bound_that_an_admin_has_set_is_told_from_a_validated_one() -> None:
    facts = dict(state_facts({**STATUS, "override": {"actor": "Ada"}}))
    assert facts["Valid"] == "until 2026-02-05T00:00:00Z, by override of Ada; a horizon of 2 windows was validated"


def test_a_task_without_a_model_says_how_many_windows_are_missing() -> None:
    nothing: dict[str, Any] = {"state": "no_model", "closed": None, "stale": False, "missing_windows": 1, "skill": None}
    facts = dict(state_facts({**STATUS, **nothing, "champion": None}))
    assert facts["State"] == "without model"
    assert facts["Needs"] == "1 more window before a horizon can be judged"
    assert facts["Champion"] == "none yet"
    assert "Closed" not in facts
    assert "Skill" not in facts


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_never_cuts_off_the_end_of_validity(width: int) -> None:
    row: dict[str, Any] = {
        "task": "repairs_of_the_northern_branch",
        "revision": 3,
        "state": "valid",
        "stale": False,
        "missing_windows": 0,
        "champion": {"version": "12", "valid_until": "2027-01-05T00:00:00Z"},
        "skill": {"skill": 24.0},
        "trust": {"verdict": "too early to say", "reason": "only 7 of the 8 windows needed are scored"},
        "registry": {"state": "ok", "reason": None},
    }
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(tasks_table([row], width))
    shown = captured.get()
    assert "2027-01-05 00:00:00Z" in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert ("too early to say" in shown) == (width >= 80)
    assert ("24 %" in shown) == (width >= 120)


def test_an_archived_task_keeps_its_version() -> None:
    kept: dict[str, Any] = {"lifecycle": "archived", "state": "no_model", "closed": None, "stale": False}
    registry = {"state": "ok", "reason": None, "champion": "1"}
    facts = dict(state_facts({**STATUS, **kept, "champion": None, "registry": registry}))
    assert facts["State"] == "archived"
    assert facts["Champion"] == "version 1, kept; it answers nothing while archived"


def test_advice_that_the_next_step_says_already_is_not_repeated() -> None:
    step = {
        "text": "Gbdt has an error that is 6 % smaller: set training.tune = true.",
        "command": "morrow task apply FILE.toml && morrow cycle flights",
        "is_needed": True,
    }
    facts = dict(state_facts({**STATUS, "next_step": step}))
    assert facts["To do"].startswith("Gbdt has an error")
    assert "Try" not in facts


def test_the_model_stands_against_naive_and_each_rival_on_the_same_windows_in_80_columns() -> None:
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(skill_table(STATUS))
    lines = [line.strip("│ ").split("│") for line in captured.get().splitlines() if "│" in line]
    assert max(map(len, captured.get().splitlines())) <= 80
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["model", "0.4000"],
        ["naive", "0.5200", "23 %"],
        ["gbdt, clearly better", "0.3749", "-7 %"],
    ]
    assert "mean absolute error on the same 3 windows" in captured.get()


def test_a_chosen_recipe_is_told_with_what_it_was_worth() -> None:
    assert "Recipe" not in dict(state_facts(STATUS))
    choice = {"cutoff": "2026-01-29T00:00:00Z", "error": 0.52341, "error_before": 0.55, "num_trials": 24}
    facts = dict(state_facts({**STATUS, "choice": choice}))
    known = "chosen among 24 on what was known at 2026-01-29T00:00:00Z"
    assert facts["Recipe"] == f"{known}: error 0.5234, as written 0.55"
    untold = {**choice, "error": None, "error_before": None}
    assert dict(state_facts({**STATUS, "choice": untold}))["Recipe"] == known


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
    assert "1000 … 1.500e+07" in shown
    assert "\x1b[31m1300" not in shown
    assert "mean absolute error" in shown


def test_answers_that_were_given_fit_80_columns_beside_what_they_promised() -> None:
    figures = {
        "num_answers": 1_234_567,
        "num_labelled": 1_000_000,
        "waiting": 0.18999,
        "error": 1234.5678,
        "expected_error": 1200.0,
        "coverage": 0.877,
        "promised_coverage": 0.9,
        "calibration_error": None,
        "label_delay_median": 12.0,
        "label_delay_p90": 172_800.0,
    }
    names = ("error", "expected_error", "coverage", "promised_coverage", "label_delay_median", "label_delay_p90")
    fresh = {**figures, **dict.fromkeys(names), "num_labelled": 0, "waiting": 1.0}
    rows = [{"version": "17", "age": 3, **figures}, {"version": "16", "age": None, **fresh}]
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        for table in answers_tables({"share": 0.25, "days": 30, "by_age": rows}):
            console.print(table)
    shown = captured.get()
    assert "1235 / 1200" in shown
    assert "87.7 % / 90.0 %" in shown
    assert "25.0 % are logged" in " ".join(shown.split())
    assert "12 s" in shown
    assert "2 days" in shown
    assert "own rows" in shown
    assert "100.0 %" in shown
    assert "…" not in shown
    (only,) = answers_tables({"share": 1.0, "days": 1, "by_age": [rows[1]]})
    assert str(only.title).startswith("answers of 1 day;")


def test_the_table_says_on_which_windows_it_compares_while_rivals_are_being_fitted() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(skill_table({**STATUS, "skill": {**STATUS["skill"], "pending": ["baseline"]}}))
    said = " ".join(console.export_text().split())
    assert "on the 3 windows that all rivals have been fitted on so far" in said
    assert "(of 9; more follow while rivals are being fitted)" in said
