"""A replay as data: what `python -m benchmarks replay --results` keeps of each stream, and of all together."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import fmean

from benchmarks.result_files import Figure, Label
from contracts.clock import format_moment
from contracts.verdict import first_failure
from trainer.monitoring.promises import Outcome
from trainer.replay.replay import Replay, ReplayedCutoff
from trainer.replay.report import (
    closings,
    errors_by_horizon,
    errors_on_window,
    find_outcomes,
    inside_band,
    paired_difference,
    realised_coverage,
)

# Name of a task's error -> the measure of its figures; a stream's absolute errors are in its label's unit.
MEASURES = {"log_loss": "log_loss", "mean_absolute_error": "error"}
UNITS = {"house_yearly": "10,000 AUD", "house_half_yearly": "10,000 AUD", "appliance": "Wh"}


def replay_figures(name: str, walked: Replay, seconds: float) -> list[Figure]:
    """Every figure of one stream; `seconds` is what the whole of it took, import and rivals included."""
    outcomes = find_outcomes(walked)
    return [
        *_promises(name, outcomes),
        *_by_horizon(name, walked, outcomes),
        *_means(name, walked),
        *(figure for cutoff in walked.cutoffs for figure in _window(name, walked, cutoff)),
        *_closings(name, walked),
        *_seconds(name, walked, seconds),
    ]


def pooled_figures(replays: Sequence[Replay]) -> list[Figure]:
    """The promises of all streams together. Windows of two streams that begin at the same moment are two."""
    found = [find_outcomes(walked) for walked in replays]
    pooled = [outcome for outcomes in found for outcome in outcomes]
    num_windows = sum(count_windows(outcomes) for outcomes in found)
    windows = Figure(of={"stream": "all"}, measure="windows", unit="", value=num_windows)
    return [windows, *(figure for figure in _promises("all", pooled) if figure.measure != "windows")]


def count_windows(outcomes: Sequence[Outcome]) -> int:
    """The number of windows of one stream."""
    return len({outcome.window for outcome in outcomes})


def mean_errors(walked: Replay) -> tuple[int, dict[str, float]]:
    """Mean error by method over the windows that were answered and that every method was scored on; their number."""
    found = [errors_on_window(walked, cutoff) for cutoff in walked.cutoffs]
    methods = [method for method in found[0] if any(errors[method] is not None for errors in found)]
    shared = [errors for errors in found if all(errors[method] is not None for method in methods)]
    means = {method: fmean(error for errors in shared if (error := errors[method]) is not None) for method in methods}
    return len(shared), means


def _promises(name: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    shares = {"in_band": inside_band(outcomes), "coverage": realised_coverage(outcomes)}
    return [
        Figure(of={"stream": name}, measure="cells", unit="", value=len(outcomes)),
        Figure(of={"stream": name}, measure="windows", unit="", value=count_windows(outcomes)),
        *(
            Figure(of={"stream": name}, measure=measure, unit="%", value=100 * share)
            for measure, share in shares.items()
            if share is not None
        ),
    ]


def _by_horizon(name: str, walked: Replay, outcomes: Sequence[Outcome]) -> list[Figure]:
    inside, beyond = errors_by_horizon(walked, outcomes)
    sides = {
        "inside the horizon": inside,
        "beyond the horizon": beyond,
        "beyond less inside, same windows": paired_difference(walked, outcomes),
    }
    return [_error(name, walked, value, ages=ages) for ages, value in sides.items() if value is not None]


def _means(name: str, walked: Replay) -> list[Figure]:
    num_windows, means = mean_errors(walked)
    return [
        Figure(of={"stream": name}, measure="shared_windows", unit="", value=num_windows),
        *(_error(name, walked, mean, method=method) for method, mean in means.items()),
    ]


def _window(name: str, walked: Replay, cutoff: ReplayedCutoff) -> list[Figure]:
    moment = format_moment(cutoff.origin)
    window = moment[:10] if walked.task.window >= timedelta(days=1) else moment[:16]
    shut = {row.valid_until for row in closings(walked)}
    state = "released" if first_failure(cutoff.decisions) is None else "held"
    of: dict[str, Label] = {
        "stream": name,
        "window": window,
        "version": cutoff.served[0] if cutoff.served else "none",
        "cycle": "closed" if cutoff.origin in shut and state == "released" else state,
    }
    errors = errors_on_window(walked, cutoff)
    return [
        Figure(of=of, measure="horizon", unit="windows", value=cutoff.horizon),
        *(
            _error(name, walked, error, window=window, method=method)
            for method, error in errors.items()
            if error is not None
        ),
    ]


def _closings(name: str, walked: Replay) -> list[Figure]:
    rows = closings(walked)
    counts = {"closings": len(rows), "closing_windows": len({row.valid_until for row in rows})}
    return [Figure(of={"stream": name}, measure=measure, unit="", value=count) for measure, count in counts.items()]


def _seconds(name: str, walked: Replay, seconds: float) -> list[Figure]:
    stages = dict.fromkeys(stage for cutoff in walked.cutoffs for stage in cutoff.seconds)
    spent = {stage: sum(cutoff.seconds.get(stage, 0.0) for cutoff in walked.cutoffs) for stage in stages}
    return [
        Figure(of={"stream": name, "stage": stage}, measure="seconds", unit="s", value=round(value, 1))
        for stage, value in {**spent, "all, with import and rivals": seconds}.items()
    ]


def _error(name: str, walked: Replay, value: float, **of: Label) -> Figure:
    return Figure(
        of={"stream": name, **of},
        measure=MEASURES[walked.task.error_name],
        unit=UNITS.get(name, "nats"),
        value=value,
    )
