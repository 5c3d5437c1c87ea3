"""Chooses the settings that the paper tuned without giving them, at the last origin before the test's.

The paper takes its last training domain for this, and so do we: fit on the domains before it, score on it. Between
equal errors, as on the 26 rows of Shuttle's, log-loss decides. The test domain is in no split that is fitted or scored.
`chosen.toml` keeps each choice with the errors that made it, and `released.toml` those of
`benchmarks.paper.choose_released`.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from benchmarks.paper.choices import Changes, Choice, Tried, words
from benchmarks.paper.recipes import OPEN, OPEN_METHOD, PAPER, WEIGHTED, WEIGHTS
from benchmarks.paper.runs import score_at
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.tables import Entry
from contracts.task import Training


def choose(
    paper_set: PaperSet, methods: Sequence[str], num_models: int, report: Callable[[str], object]
) -> dict[str, Choice]:
    """Choose for one set: first what the text leaves open, then λ for each of these methods that has one."""
    training, choices = PAPER[paper_set.name], {}
    searches: list[tuple[str, Sequence[Changes]]] = [(method, WEIGHTS) for method in WEIGHTED if method in methods]
    if paper_set.name in OPEN:
        searches.insert(0, (OPEN_METHOD, OPEN[paper_set.name]))
    for method, candidates in searches:
        choice = _best(paper_set, method, training, candidates, num_models)
        report(f"{paper_set.name}, {method}: {words(choice.changes)}; {choice.chosen_by}")
        choices[method] = choice
        if method == OPEN_METHOD:
            training = training.model_copy(update=dict(choice.changes))
    return choices


def _best(
    paper_set: PaperSet, method: str, training: Training, candidates: Sequence[Changes], num_models: int
) -> Choice:
    origin = paper_set.test_origin - 1
    entry = Entry("choice", paper_set.name, method, "paper")
    scores = [
        score_at(paper_set, origin, entry, training.model_copy(update=dict(changes)), num_models)
        for changes in candidates
    ]
    found = [(fmean(score.errors), fmean(score.losses)) for score in scores]
    best = min(range(len(candidates)), key=found.__getitem__)
    return Choice(
        changes=dict(candidates[best]),
        domains=(origin,),
        models=num_models,
        tried=tuple(
            Tried(changes=dict(changes), error=_short(error), loss=_short(loss))
            for changes, (error, loss) in zip(candidates, found, strict=True)
        ),
    )


def _short(value: float) -> float:
    """Three significant digits, as the file keeps them."""
    return float(f"{value:.3g}")
