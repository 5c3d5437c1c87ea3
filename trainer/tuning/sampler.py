"""What a search tries next: recipes that are given, what is like them, and then what Optuna's TPE draws from a space.

Optuna knows a value by its place in the space; nobody else needs to.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contracts.task import Training
from trainer.tuning.space import FORMS, UNORDERED, Space, value_of

if TYPE_CHECKING:
    import optuna

_NUM_DRAWN_BLINDLY = 10
_NUM_NEVER_PRUNED = 4
# Neighbours of a recipe, and in how many settings each differs.
_NUM_NEIGHBOURS, _NUM_STEPS = 8, 4

Places = dict[str, int]


class Draws:
    """One search of a space. What is queued is drawn first."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.num_other_forms = sum(len(space[name]) - 1 for name in FORMS if name in space)
        self._space, self._seed = space, seed
        self._study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_NUM_DRAWN_BLINDLY),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_NUM_NEVER_PRUNED),
        )

    def queue(self, training: Training) -> None:
        """The nearest that the space has to a recipe."""
        self._study.enqueue_trial(self._places(training))

    def queue_other_forms(self, training: Training) -> None:
        """This recipe with rows read otherwise, one form at a time: `num_other_forms` of them."""
        home = self._places(training)
        for name in (name for name in FORMS if name in self._space):
            for place in range(len(self._space[name])):
                if place != home[name]:
                    self._study.enqueue_trial(home | {name: place})

    def queue_neighbours(self, training: Training) -> None:
        """Recipes that differ from this one by a step in a few settings."""
        for places in self._neighbours(self._places(training)):
            self._study.enqueue_trial(places)

    def draw(self) -> tuple["optuna.Trial", Mapping[str, Any]]:
        """The next draw, and the settings that it stands for."""
        drawn = self._study.ask()
        return drawn, {name: values[_suggest(drawn, name, len(values))] for name, values in self._space.items()}

    def falls_behind(self, drawn: "optuna.Trial", step: int, error: float) -> bool:
        """Note the error at this step of a trial; whether it is worse than the median of its forerunners there."""
        drawn.report(error, step)
        return drawn.should_prune()

    def tell(self, drawn: "optuna.Trial", error: float | None) -> None:
        """Let the sampler know what a draw was worth; one without an error is to be kept away from."""
        from optuna.trial import TrialState

        self._study.tell(drawn, error, state=TrialState.PRUNED if error is None else TrialState.COMPLETE)

    def _neighbours(self, home: Places) -> Iterator[Places]:
        draw = random.Random(self._seed)  # noqa: S311 a search needs no secrets
        for _ in range(_NUM_NEIGHBOURS):
            places = dict(home)
            for name in draw.sample(sorted(self._space), min(_NUM_STEPS, len(self._space))):
                last, ordered = len(self._space[name]) - 1, name not in UNORDERED
                places[name] = _step(places[name], last, draw.choice((-1, 1))) if ordered else draw.randint(0, last)
            yield places

    def _places(self, training: Training) -> Places:
        return {name: _nearest(values, value_of(training, name)) for name, values in self._space.items()}


def _step(place: int, last: int, step: int) -> int:
    """The next place, or the one on the other side where there is none."""
    return place + step if 0 <= place + step <= last else max(0, min(last, place - step))


def _suggest(drawn: "optuna.Trial", name: str, count: int) -> int:
    """The place of a value among so many."""
    if name in UNORDERED:
        place: int = drawn.suggest_categorical(name, range(count))
        return place
    return drawn.suggest_int(name, 0, count - 1)


def _nearest(values: Sequence[Any], value: Any) -> int:
    """The place of a value, or of the number nearest to it; the last where there is neither."""
    if value in values:
        return values.index(value)
    numbers = [k for k, each in enumerate(values) if isinstance(each, int | float)]
    if value is None or not numbers:
        return len(values) - 1
    return min(numbers, key=lambda k: abs(values[k] - value))
