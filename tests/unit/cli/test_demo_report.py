from typing import get_args

from rich.console import Console

from cli.demo.report import (
    LEGEND,
    METHODS,
    WeekReport,
    comparison,
    mean_figures,
    week_document,
    week_line,
    weeks_table,
)
from contracts.task import Rival
from store.error_cells import NAIVE
from trainer.replay.report import METHODS as REPLAYED_METHODS


def week(gi: float | None, note: str | None = None) -> WeekReport:
    losses = {"baseline": 0.5, "last_window": 0.7, "naive": 0.6} | ({} if gi is None else {"gi": gi})
    return WeekReport(
        start="2013-07-02T05:00:00Z",
        version=None if gi is None else "1",
        valid_until=None,
        num_flights=10,
        num_requests=2,
        cycle_seconds=1.0,
        note=note,
        log_loss=losses,
        error=dict.fromkeys(losses, 0.25),
    )


def test_document_has_the_promised_names() -> None:
    document = week_document(week(0.4))
    assert {"start", "version", "valid_until", "requests", "log_loss", "error"} <= set(document)
    assert set(document["log_loss"]) == set(document["error"]) == set(METHODS)


def test_demo_and_replay_call_methods_by_the_names_that_a_task_gives_them() -> None:
    assert {*METHODS, *REPLAYED_METHODS} <= {*get_args(Rival), NAIVE}


def test_a_week_without_answers_is_null_and_says_why() -> None:
    unanswered = week(None, note="The cycle is held: too few windows")
    assert week_document(unanswered)["log_loss"]["gi"] is None
    assert "held: too few windows" in week_line(unanswered)


def test_means_are_taken_over_answered_weeks_only() -> None:
    losses, errors = mean_figures([week(0.4), week(0.5)])
    assert losses["gi"] == 0.45
    assert errors["gi"] == 0.25
    assert "0.4500 against 0.5000" in comparison([week(0.4), week(0.5), week(None)])[0]


def test_the_table_fits_80_columns_whole() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(weeks_table([week(0.4), week(None)]))
        console.print(LEGEND)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in captured.get()
    assert lines[-2:] == LEGEND.splitlines()
    assert "0.6000" in captured.get()


def test_a_defeat_is_said_plainly() -> None:
    won, lost = comparison([week(0.65)])[1:], comparison([week(0.65)])[0]
    assert lost.startswith("gi does NOT beat baseline")
    assert won[0].startswith("gi beats last_window")
    assert won[1].startswith("gi does NOT beat naive")


def test_nothing_is_compared_where_nothing_was_answered() -> None:
    assert comparison([week(None)]) == ["gi answered in no week, so nothing can be compared."]
