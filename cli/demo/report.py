"""The demo's output: a row per week, the means, and a plain statement of which method won."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from contracts.task import Training

METHODS = ("gi", "baseline", "last_window", "naive")
LEGEND = (
    "baseline: the same network and budget without time, on all past weeks;\n"
    "last_window: the same on the newest week only; naive: its class shares."
)


@dataclass(frozen=True)
class WeekReport:
    """One week. Figures by method; gi has none in a week that no version could answer, and `note` says why."""

    start: str
    version: str | None
    valid_until: str | None
    num_flights: int
    num_requests: int
    cycle_seconds: float
    note: str | None
    log_loss: Mapping[str, float]
    error: Mapping[str, float]


def week_document(week: WeekReport) -> dict[str, Any]:
    """A week as `--json` writes it; missing figures are null."""
    return {
        "start": week.start,
        "version": week.version,
        "valid_until": week.valid_until,
        "requests": week.num_requests,
        "flights": week.num_flights,
        "cycle_seconds": round(week.cycle_seconds, 2),
        "note": week.note,
        "log_loss": {method: week.log_loss.get(method) for method in METHODS},
        "error": {method: week.error.get(method) for method in METHODS},
    }


def weeks_table(weeks: Sequence[WeekReport]) -> Table:
    """A row per week, and a row of means over the weeks that all methods answered; fits 80 columns."""
    title = "Late flights, week by week: log-loss and error rate"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("week of", no_wrap=True)
    table.add_column("ver-\nsion", justify="right", no_wrap=True)
    table.add_column("valid\nuntil", no_wrap=True)
    table.add_column("re-\nquests", justify="right", no_wrap=True)
    for method in METHODS:
        table.add_column(method.replace("_", "_\n"), justify="right", no_wrap=True)
    for week in weeks:
        table.add_row(
            week.start[:10],
            week.version or "–",
            (week.valid_until or "–")[:10],
            str(week.num_requests),
            *(_figures(week.log_loss.get(method), week.error.get(method)) for method in METHODS),
        )
    if answered := answered_by_all(weeks):
        losses, errors = mean_figures(answered)
        table.add_section()
        means = (_figures(losses[method], errors[method]) for method in METHODS)
        table.add_row(f"mean of {len(answered)}", *[""] * 3, *means)
    return table


def week_line(week: WeekReport) -> str:
    """One week as text, printed as soon as it is known."""
    losses = ", ".join(f"{method} {_figure(week.log_loss.get(method))}" for method in METHODS)
    served = f"version {week.version}, valid until {week.valid_until}" if week.version else "no version"
    line = f"{week.start[:10]}: {served}; cycle {week.cycle_seconds:.0f} s\n  log-loss: {losses}"
    return f"{line}\n  {week.note}" if week.note else line


def answered_by_all(weeks: Sequence[WeekReport]) -> list[WeekReport]:
    """The weeks that all methods answered: those that means are taken over."""
    return [week for week in weeks if all(method in week.log_loss for method in METHODS)]


def mean_figures(weeks: Sequence[WeekReport]) -> tuple[dict[str, float], dict[str, float]]:
    """Mean log-loss and mean error rate by method; every week has the same weight."""
    return (
        {method: fmean(week.log_loss[method] for week in weeks) for method in METHODS},
        {method: fmean(week.error[method] for week in weeks) for method in METHODS},
    )


def comparison(weeks: Sequence[WeekReport]) -> list[str]:
    """One sentence per rival: whether gi's mean log-loss is lower."""
    answered = answered_by_all(weeks)
    if not answered:
        return ["gi answered in no week, so nothing can be compared."]
    losses, _ = mean_figures(answered)
    sentences = []
    for rival in METHODS[1:]:
        verb = "beats" if losses["gi"] < losses[rival] else "does NOT beat"
        sentences.append(f"gi {verb} {rival}: mean log-loss {losses['gi']:.4f} against {losses[rival]:.4f}.")
    return sentences


def budget(training: Training) -> str:
    """The settings that limit a fit, the same for gi and the rival networks."""
    history = "all past weeks" if training.history is None else f"the newest {training.history} weeks"
    return (
        f"Budget of every network: {training.num_seeds} seeds; {training.pretrain_epochs} epochs of at most "
        f"{training.rows_per_epoch:,} rows, then {training.finetune_epochs} on each of {training.finetune_windows} "
        f"weeks; {history}."
    )


def print_refusal(console: Console, status: int, problem: Mapping[str, Any]) -> None:
    """Print a refused request's problem document as received."""
    console.print(f"One microsecond past valid_until is refused with {status}:")
    console.print_json(data=dict(problem))


def _figure(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.4f}"


def _figures(loss: float | None, error: float | None) -> str:
    return "–" if loss is None or error is None else f"{loss:.4f}\n{error:.1%}"
