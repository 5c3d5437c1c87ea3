"""The steps of a cycle from its rows to its verified fit, in this process, in memory and a scratch folder.

The trainer's own functions carry out each step, so the graph has the bytes that a cycle of the same rows releases.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from contracts.clock import to_micros
from contracts.errors import CycleError
from contracts.task import Task
from service.models.forecaster import LoadedForecaster
from service.models.loader import load_forecaster
from store.error_cells import Cell
from store.events.batches import EventBatch
from store.events.reading.unstored import lay_out_unstored
from store.tasks.catalog import Schema
from trainer.data.snapshot import Reading
from trainer.evaluation.backtest import fill_and_judge, report_epoch
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import AgeVerdict, HorizonVerdict, horizon_rule, judge_ages
from trainer.evaluation.release_gates import reason_to_skip
from trainer.evaluation.stored_matrix import CellsInMemory
from trainer.evaluation.suspect_windows import counted
from trainer.evaluation.units import InThisProcess, candidate_unit
from trainer.export.opened_artefact import verify_artefact
from trainer.network.device import choose_device
from trainer.progress import Report
from trainer.settings import TrainerSettings

_VERSION = "fitted"


@dataclass(frozen=True)
class Version:
    """A fitted version as its files, so that it can be pickled, with the matrix that its horizon follows from.

    `ages` are judged beyond the horizon too, each compared with a fresh model.
    """

    task: Task
    cutoff: int
    files: dict[str, bytes]
    cells: tuple[Cell, ...]
    verdict: HorizonVerdict
    ages: tuple[AgeVerdict, ...]

    def load(self) -> LoadedForecaster:
        """The version as the API answers with it."""
        with TemporaryDirectory(prefix="morrow-") as folder:
            for name, content in self.files.items():
                Path(folder, name).write_bytes(content)
            return load_forecaster(Path(folder), self.task.name, _VERSION, threads=1)


def fit_version(task: Task, rows: EventBatch, settings: TrainerSettings, *, now: datetime, report: Report) -> Version:
    """The version that a cycle makes of these rows at the first window boundary at which all of them are known.

    Raises CycleError if nothing can be fitted.
    """
    cutoff = task.clock.window_start(int(rows.known_at.max())) + task.clock.window
    events = lay_out_unstored(task, rows, cutoff)
    reading = Reading(Schema(0, 0, 1, task), cutoff, to_micros(now), events)
    with TemporaryDirectory(prefix="morrow-") as home:
        settings = settings.model_copy(update={"home": Path(home)})
        reading = _choose_recipe(reading, settings, report)
        task = reading.schema.task
        if reason := reason_to_skip(task, reading.fit_rows(cutoff)):
            raise CycleError(f"Nothing can be fitted: {reason}.")
        store, executor = FitStore(settings.home, task), InThisProcess(settings)
        follow = partial(report_epoch, report)
        cells, verdict = fill_and_judge(
            CellsInMemory(), reading, store, settings, executor, report=report, on_epoch=partial(follow, "score")
        )
        unit, cells = candidate_unit(reading, cells, verdict)
        deque(executor.run([unit], store, partial(follow, "fit")), maxlen=0)
        verify_artefact(store.folder(cutoff))
        files = {file.name: file.read_bytes() for file in store.folder(cutoff).iterdir()}
    ages = judge_ages(counted(task, cells), horizon_rule(task))
    return Version(task, cutoff, files, tuple(cells), verdict, ages)


def _choose_recipe(reading: Reading, settings: TrainerSettings, report: Report) -> Reading:
    """The reading for the recipe that `training.tune` asks to choose."""
    if not reading.schema.task.training.tune:
        return reading
    from trainer.retraining.recipe_step import choose_recipe  # loads MLflow, which takes seconds

    found = choose_recipe(
        reading,
        choose_device(settings),
        settings.cycle_limit_seconds,
        report=report,
        on_start=_ignore,
        on_trial=_ignore,
    )
    return reading if found is None else reading.with_training(found.search.training)


def _ignore() -> None:
    """Nothing waits for the steps of a search."""
