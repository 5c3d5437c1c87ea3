"""Which answers are logged, and the row of each: what was asked, of which version, and what it answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan

import msgspec

from contracts.spec.prediction_log import PredictionLog
from contracts.task import Feature, Task
from service.models.follower import Follower
from service.models.forecaster import LoadedForecaster
from service.predict.log_writer import LogWriter
from store.predictions.rows import write_row, write_source

# The last bytes of an id that decide whether it is logged, and how many values they have.
_DECIDING = 4
_NUM_DECIDING = 256**_DECIDING

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class _Source:
    """What the rows of a version's answers share.

    Ids whose last bytes are below `threshold` are logged. `features` has the names of the features, the numbers first;
    it is None if the task logs none. `booleans`, `integers` and `categories` are places among them that need more than
    to be written: values of these kinds, and categories that may be missing.
    """

    version: str
    task: Task
    task_id: int
    threshold: int
    fields: bytes
    features: type[msgspec.Struct] | None
    booleans: tuple[int, ...]
    integers: tuple[int, ...]
    categories: tuple[int, ...]

    def logs(self, prediction_id: bytes) -> bool:
        if self.threshold == _NUM_DECIDING:
            return True
        return int.from_bytes(prediction_id[-_DECIDING:]) < self.threshold

    def write_features(self, numbers: Sequence[float], categories: Sequence[str]) -> bytes | None:
        """The features as an event has them: of a boolean true or false, of an integer no fraction, null if missing."""
        if self.features is None:
            return None
        if not (self.booleans or self.integers or self.categories):
            return _encode(self.features(*numbers, *categories))
        values: list[float | bool | str | None] = [*numbers, *categories]
        for place in self.booleans:
            values[place] = None if isnan(numbers[place]) else bool(numbers[place])
        for place in self.integers:
            values[place] = None if isnan(numbers[place]) else int(numbers[place])
        for place in self.categories:
            values[place] = values[place] or None
        return _encode(self.features(*values))


class AnswerLog:
    """Logs the answers of one process, as the tasks' present revisions say. Any thread may use it."""

    def __init__(self, follower: Follower, writer: LogWriter | None) -> None:
        self._follower = follower
        self._writer = writer
        self._snapshot = follower.snapshot
        self._sources: dict[str, _Source] = {}

    def note(
        self,
        forecaster: LoadedForecaster,
        prediction_id: bytes,
        row: tuple[Sequence[float], Sequence[str]],
        *,
        at: int,
        key_name: str | None,
        answer: bytes,
    ) -> None:
        """Let an answer be stored soon, if its task says so: to a row of numbers and categories, about `at`."""
        if self._writer is None:
            return
        if self._follower.snapshot is not self._snapshot:
            self._snapshot, self._sources = self._follower.snapshot, {}
        source = self._sources.get(forecaster.task.name)
        if source is None or source.task is not forecaster.task or source.version != forecaster.version:
            source = self._find_source(forecaster)
        if source is not None and source.logs(prediction_id):
            features = source.write_features(*row)
            written = write_row(prediction_id, source.fields, at, key_name=key_name, features=features, answer=answer)
            self._writer.add(written, source.task_id)

    def _find_source(self, forecaster: LoadedForecaster) -> _Source | None:
        """None if it is not known yet which task this is."""
        name, sources = forecaster.task.name, self._sources
        task_id = self._follower.task_id(name)
        if task_id is None:
            return None
        known = self._snapshot.known.get(task_id)
        rule = forecaster.task.log if known is None or known.schema is None else known.schema.task.log
        source = sources[name] = _make_source(forecaster, task_id, rule)
        return source


def _make_source(forecaster: LoadedForecaster, task_id: int, rule: PredictionLog) -> _Source:
    task = forecaster.task
    return _Source(
        version=forecaster.version,
        task=task,
        task_id=task_id,
        threshold=round(rule.share * _NUM_DECIDING),
        fields=write_source(task_id, forecaster.version),
        features=_compile_features(task) if rule.features else None,
        booleans=_find_places(task, lambda one: one.kind == "boolean"),
        integers=_find_places(task, lambda one: one.kind == "integer"),
        categories=_find_places(task, lambda one: one.kind == "category" and one.optional),
    )


@lru_cache(maxsize=1024)
def _compile_features(task: Task) -> type[msgspec.Struct]:
    """A struct of the features by their names, which is encoded faster than a dict."""
    names = {f"f{place}": feature.name for place, feature in enumerate((*task.numbers, *task.categories))}
    return msgspec.defstruct("LoggedFeatures", [*names], rename=names, gc=False)


def _find_places(task: Task, is_found: Callable[[Feature], bool]) -> tuple[int, ...]:
    """Places of features, the numbers before the categories."""
    return tuple(place for place, one in enumerate((*task.numbers, *task.categories)) if is_found(one))
