"""Which recipe a search tries next: given recipes first, then their variations, then samples of Optuna's TPE.

Optuna sees each value as its position in the space. No other module needs to know that.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contracts.task import Training
from trainer.tuning.space import FORMS, UNORDERED, Space, value_of

if TYPE_CHECKING:
    import optuna

_NUM_RANDOM = 10
_NUM_NEVER_PRUNED = 4
# How many neighbours a recipe has, and in how many settings each of them differs.
_NUM_NEIGHBOURS, _NUM_STEPS = 8, 4

Positions = dict[str, int]


class Sampler:
    """One search of a space. Enqueued recipes come first."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.num_other_forms = sum(len(space[name]) - 1 for name in FORMS if name in space)
        self._space, self._seed = space, seed
        self._study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_NUM_RANDOM),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_NUM_NEVER_PRUNED),
        )

    def enqueue(self, training: Training) -> None:
        """Enqueue the point of the space that is nearest to a recipe."""
        self._study.enqueue_trial(self._positions(training))

    def enqueue_other_forms(self, training: Training) -> None:
        """Enqueue this recipe with rows read in another form, one form at a time: `num_other_forms` recipes."""
        home = self._positions(training)
        for name in (name for name in FORMS if name in self._space):
            for position in range(len(self._space[name])):
                if position != home[name]:
                    self._study.enqueue_trial(home | {name: position})

    def enqueue_neighbours(self, training: Training) -> None:
        """Enqueue recipes that differ from this one by a step in a few settings."""
        for positions in self._neighbours(self._positions(training)):
            self._study.enqueue_trial(positions)

    def ask(self) -> tuple["optuna.Trial", Mapping[str, Any]]:
        """The next sample, and its settings."""
        sample = self._study.ask()
        return sample, {name: values[_suggest(sample, name, len(values))] for name, values in self._space.items()}

    def should_prune(self, sample: "optuna.Trial", step: int, error: float) -> bool:
        """Note a trial's error at this step; returns whether it is worse than the median of earlier trials there."""
        sample.report(error, step)
        return sample.should_prune()

    def tell(self, sample: "optuna.Trial", error: float | None) -> None:
        """Report the error of a sample to Optuna. A sample without an error counts as pruned and is avoided."""
        from optuna.trial import TrialState

        self._study.tell(sample, error, state=TrialState.PRUNED if error is None else TrialState.COMPLETE)

    def _neighbours(self, home: Positions) -> Iterator[Positions]:
        draw = random.Random(self._seed)  # noqa: S311 a search needs no secrets
        for _ in range(_NUM_NEIGHBOURS):
            positions = dict(home)
            for name in draw.sample(sorted(self._space), min(_NUM_STEPS, len(self._space))):
                last, ordered = len(self._space[name]) - 1, name not in UNORDERED
                here = positions[name]
                positions[name] = _step(here, last, draw.choice((-1, 1))) if ordered else draw.randint(0, last)
            yield positions

    def _positions(self, training: Training) -> Positions:
        return {name: _nearest(values, value_of(training, name)) for name, values in self._space.items()}


def _step(position: int, last: int, step: int) -> int:
    """The next position; at the end of the range, the one on the other side."""
    return position + step if 0 <= position + step <= last else max(0, min(last, position - step))


def _suggest(sample: "optuna.Trial", name: str, count: int) -> int:
    """The position of the sampled value among `count` values."""
    if name in UNORDERED:
        position: int = sample.suggest_categorical(name, range(count))
        return position
    return sample.suggest_int(name, 0, count - 1)


def _nearest(values: Sequence[Any], value: Any) -> int:
    """The position of a value, else of the nearest number, else the last position."""
    if value in values:
        return values.index(value)
    numbers = [k for k, each in enumerate(values) if isinstance(each, int | float)]
    if value is None or not numbers:
        return len(values) - 1
    return min(numbers, key=lambda k: abs(values[k] - value))
