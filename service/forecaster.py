"""A released version, loaded and immutable: rows and moments in, answers out, inside its horizon only.

Everything an answer says of its version comes from one object, so that a swap in the middle of a request cannot mix
two versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from contracts.clock import format_duration, format_moment
from contracts.errors import ArtefactRefused, Fault, ModelExpired, MorrowError, OutsideHorizon
from contracts.manifest import GRAPH_FILE, Manifest, check_probe, graph_feed, read_manifest
from contracts.task import Task
from service.rows import RowRules, compile_rules
from service.structs import Row

NUM_ROWS_PER_RUN = 1024


class AnswerNotFinite(MorrowError):
    """The model gave no finite answer to these rows."""

    def __init__(self, task: str, version: str) -> None:
        self.task, self.version = task, version
        super().__init__(f"Version {version} of {task} gave no finite answer to these rows.")


class Answer(msgspec.Struct, frozen=True):
    """One answer of /predict. `mean` and `scale` belong to regression, `probabilities` to classification."""

    task: str
    prediction: str | float
    probabilities: dict[str, float] | UnsetType
    mean: float | UnsetType
    scale: float | UnsetType
    at: str
    lead: str
    expected_error: float | None
    error_name: str
    version: str
    trained_until: str
    valid_until: str


@dataclass(frozen=True)
class Forecaster:
    """One version that answers; `valid_until` (microseconds) is the manifest's or what `releases` says of it later."""

    version: str
    manifest: Manifest
    task: Task
    rules: RowRules
    session: onnxruntime.InferenceSession
    valid_until: int
    errors: dict[int, float]

    def answer(self, row: Row, now: int) -> Answer:
        """The answer to one row. Raises OutsideHorizon, ModelExpired, AnswerNotFinite."""
        return self.answers([row], now)[0]

    def answers(self, rows: Sequence[Row], now: int) -> list[Answer]:
        """Answers in the order of rows; all of them or none. Raises as `answer`."""
        moments = [now if row.at is None else row.at for row in rows]
        self._guard(rows, moments)
        found: list[Answer] = []
        for start in range(0, len(rows), NUM_ROWS_PER_RUN):
            part = slice(start, start + NUM_ROWS_PER_RUN)
            found += self._run(rows[part], moments[part])
        return found

    def with_valid_until(self, valid_until: int) -> "Forecaster":
        return replace(self, valid_until=valid_until)

    def _guard(self, rows: Sequence[Row], moments: Sequence[int]) -> None:
        valid_from, valid_until = self.manifest.trained_from, self.valid_until
        if valid_from <= min(moments) and max(moments) <= valid_until:
            return
        outside = [place for place, at in enumerate(moments) if not valid_from <= at <= valid_until]
        first = outside[0]
        if rows[first].at is None and moments[first] > valid_until:
            raise ModelExpired(f"Version {self.version} was valid until {format_moment(valid_until)}.")
        error = OutsideHorizon(moments[first], valid_from, valid_until, self.version)
        if len(rows) > 1:
            reason = error.faults[0].reason
            error.faults = tuple(Fault(f"rows[{place}].at", reason) for place in outside)
        raise error

    def _run(self, rows: Sequence[Row], moments: Sequence[int]) -> list[Answer]:
        feed = graph_feed(
            self.task,
            np.array(moments, np.int64),
            np.array([row.numbers for row in rows], np.float64),
            np.array([row.categories for row in rows], object),
        )
        outputs: list[NDArray[Any]] = self.session.run(None, feed)
        if not all(np.isfinite(output).all() for output in outputs):
            raise AnswerNotFinite(self.task.name, self.version)
        if self.task.is_classification:
            return [self._class_answer(at, shares) for at, shares in zip(moments, outputs[0].tolist(), strict=True)]
        means, scales = outputs[0].tolist(), outputs[1].tolist()
        return [self._value_answer(*each) for each in zip(moments, means, scales, strict=True)]

    def _class_answer(self, at: int, shares: list[float]) -> Answer:
        classes = self.manifest.classes
        prediction = classes[shares.index(max(shares))]
        return self._describe(at, prediction, dict(zip(classes, shares, strict=True)), UNSET, UNSET)

    def _value_answer(self, at: int, mean: float, scale: float) -> Answer:
        return self._describe(at, mean, UNSET, mean, scale)

    def _describe(
        self,
        at: int,
        prediction: str | float,
        probabilities: dict[str, float] | UnsetType,
        mean: float | UnsetType,
        scale: float | UnsetType,
    ) -> Answer:
        return Answer(
            self.task.name,
            prediction,
            probabilities,
            mean,
            scale,
            format_moment(at),
            format_duration(at - self.manifest.cutoff),
            self._expected_error(at),
            self.manifest.error_name,
            self.version,
            *self._bounds,
        )

    @cached_property
    def _bounds(self) -> tuple[str, str]:
        """`trained_until` and `valid_until` as every answer says them."""
        return format_moment(self.manifest.cutoff), format_moment(self.valid_until)

    def _expected_error(self, at: int) -> float | None:
        """Mean error at the age of the window that holds `at`; the horizon's very end takes the last age."""
        cutoff, window = self.manifest.cutoff, self.manifest.window
        return None if at <= cutoff else self.errors.get((min(at, self.valid_until - 1) - cutoff) // window)


def load_forecaster(folder: Path, task_name: str, version: str, *, threads: int) -> Forecaster:
    """Load a version from its folder, checked: files, task, probe. Raises ArtefactRefused."""
    manifest = read_manifest(folder)
    try:
        task = manifest.parse_task()
    except ValueError as error:
        raise ArtefactRefused("The manifest's task cannot be read.") from error
    if task.name != task_name:
        raise ArtefactRefused(f"The manifest is of task {task.name!r}, not {task_name!r}.")
    num_outputs = len(manifest.classes) if task.is_classification else 2
    if any(len(outputs) != num_outputs for outputs in manifest.probe.outputs):
        raise ArtefactRefused(f"The probe's answers do not have {num_outputs} columns.")
    session = _open_session((folder / GRAPH_FILE).read_bytes(), threads)
    check_probe(manifest, lambda feed: session.run(None, feed))
    return Forecaster(
        version=version,
        manifest=manifest,
        task=task,
        rules=compile_rules(task),
        session=session,
        valid_until=manifest.valid_until,
        errors={age.age: age.mean for age in manifest.ages},
    )


def _open_session(graph: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no root in common
        raise ArtefactRefused(f"The graph cannot be loaded: {error}") from error
