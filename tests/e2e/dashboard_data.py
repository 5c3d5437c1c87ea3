"""A store and a home with something of everything that the dashboard shows, as cycles and producers leave them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from contracts.calibration import LEVELS, AgeQuantiles, Calibration
from contracts.clock import format_moment, from_micros, to_micros
from contracts.manifest import AgeError
from contracts.task import Task
from contracts.verdict import LimitCheck
from service.models.local_copies import Current, write_current
from store.error_cells import Cell, record_cells
from store.events.batches import Event
from store.events.writes import Rejection, append_events, record_rejections
from store.tasks.catalog import Schema, define_task
from tests.integration.artefacts import WEEK, write_version
from tests.integration.published_versions import note, run_cycle
from tests.integration.service_app import TASK

MARKUP = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
CLASSES = ["late & <b>sorry</b>", "on_time"]
HORIZON = 3
REFUSAL = "the error may grow by 0.09, more than the tolerated 0.044"


def define(engine: Engine, name: str, now: datetime, **changes: Any) -> Schema:
    """A task, defined a year ago."""
    target = {"name": "outcome", "kind": "classification", "classes": CLASSES}
    spec = {**TASK, "name": name, "target": target, **changes}
    with engine.begin() as connection:
        return define_task(connection, Task.model_validate(spec), now - timedelta(days=365))[0]


def fill(engine: Engine, schema: Schema, home: Path, now: datetime, *, is_closed: bool = False) -> int:
    """A task whose version 7 answers, or whose horizon is closed; returns its cutoff.

    The cutoff lies one to two windows before `now`: a release of then, and four before it.
    """
    task = schema.task
    cutoff = task.clock.window_start(to_micros(now)) - WEEK
    post_events(engine, schema, cutoff, num_windows=20)
    for place, version in enumerate(["3", "4", "5", "7"]):
        _release(engine, schema, version, cutoff - (3 - place) * WEEK)
    _score(engine, schema, cutoff)
    _run_cycles(engine, schema, cutoff)
    valid_until = cutoff + HORIZON * WEEK
    if is_closed:
        valid_until = cutoff
        reason = f"an error above its limit {MARKUP}"
        note(
            engine,
            schema,
            "7",
            "close",
            valid_until=valid_until,
            reason=reason,
            verdict=_breach(valid_until),
            now=datetime.now(UTC),
        )
    ages = [AgeError(age, 6, (44 + 2 * age) / 100, 0.36, (52 + 3 * age) / 100, 0.6) for age in range(HORIZON)]
    quantile = 1.5 if task.target.kind == "regression" else 0.6
    calibration = Calibration(1.0, [AgeQuantiles(age, 500, [quantile] * len(LEVELS)) for age in range(HORIZON)])
    spec = {"target": task.target.model_dump(mode="json")}
    folder = write_version(
        home / "models" / task.name / "7",
        task=task.name,
        spec=spec,
        horizon=HORIZON,
        cutoff=cutoff,
        trained_from=cutoff - 20 * WEEK,
        recipe=task.recipe,
        classes=CLASSES if task.is_classification else [],
        ages=ages,
        calibration=calibration,
    )
    write_current(folder.parent, Current("7", valid_until))
    return cutoff


def _breach(window: int) -> LimitCheck:
    return LimitCheck(from_micros(window), age=0, error_name="log_loss", value=0.9, threshold=0.6, num_rows=40)


def post_events(engine: Engine, schema: Schema, until: int, num_windows: int) -> None:
    """Rows in each of `num_windows` windows before a moment, and a refused one."""
    label = CLASSES[0] if schema.task.is_classification else "1.5"
    rows = [
        Event(f"e{window}-{number}", at, at, (1400.0, 3.5), ("UA",), label)
        for window in range(num_windows)
        for number in range(12 + 7 * window % 23)
        for at in [until - (window + 1) * WEEK + number * 3_600_000_000]
    ]
    moment = datetime.now(UTC)
    with engine.begin() as connection:
        append_events(connection, schema, rows, moment)
        record_rejections(connection, schema.task_id, [Rejection("bad", MARKUP, "{}")], moment)


def _release(engine: Engine, schema: Schema, version: str, cutoff: int) -> None:
    ages = [
        {
            "age": age,
            "num_windows": 9 - age,
            "mean": (44 + 2 * age) / 100,
            "low": 0.36,
            "high": 0.6,
            "limit": 0.6,
            "naive": 0.69,
            "reason": None if age < HORIZON else f"{REFUSAL} {MARKUP}",
        }
        for age in range(HORIZON + 1)
    ]
    promise = {"cutoff": format_moment(cutoff), "recipe": schema.task.recipe, "horizon": HORIZON, "ages": ages}
    why = f"better than naive {MARKUP}"
    note(
        engine,
        schema,
        version,
        "release",
        valid_until=cutoff + HORIZON * WEEK,
        reason=why,
        verdict=promise,
        now=datetime.now(UTC),
    )
    if version == "4":
        why = "0.9 is above its limit 0.6"
        note(
            engine,
            schema,
            version,
            "close",
            valid_until=cutoff + WEEK,
            reason=why,
            verdict=_breach(cutoff + WEEK),
            now=datetime.now(UTC),
        )


def _score(engine: Engine, schema: Schema, cutoff: int) -> None:
    """Errors that grow with age, of ten origins; the newest window is a first look.

    Naive is worse by a half, and a rival of the newest five origins by a tenth. The others were given up.
    """
    cells = [
        Cell(
            origin,
            origin + age * WEEK,
            method,
            40 + age,
            factor * (0.4 + 0.03 * age + 0.02 * (place % 3)),
            factor * (0.2 + 0.01 * age),
            is_complete=origin + age * WEEK < cutoff,
        )
        for method, factor, num_origins in (
            (schema.task.training.method, 1.0, 10),
            ("naive", 1.5, 10),
            ("gbdt", 1.1, 5),
        )
        for place in range(num_origins)
        for origin in [cutoff - place * WEEK]
        for age in range(5)
        if origin + age * WEEK <= cutoff
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, datetime.now(UTC) - timedelta(hours=2))


def _run_cycles(engine: Engine, schema: Schema, cutoff: int) -> None:
    """One of every ending, the newest held by a rule that an admin may overrule."""
    rules = [
        {"rule": "min_rows", "passed": True, "value": 640.0, "threshold": 100.0, "reason": None},
        {"rule": "horizon", "passed": True, "value": 3.0, "threshold": 1.0, "reason": None},
    ]
    suspect = {"rule": "newest_window", "passed": False, "value": 0.71, "threshold": 0.6, "reason": MARKUP}
    run_cycle(engine, schema, cutoff - 2 * WEEK, "failed", MARKUP)
    run_cycle(engine, schema, cutoff - WEEK, "skipped", "too few rows (12)")
    verdict = {"passed": True, "reason": None, "decisions": rules}
    run_cycle(engine, schema, cutoff, "released", None, version="7", num_rows=640, verdict=verdict)
    held = {"passed": False, "reason": "the newest window is suspect", "decisions": [*rules, suspect]}
    run_cycle(engine, schema, cutoff + WEEK, "held", "the newest window is suspect", num_rows=655, verdict=held)
