"""Everything that is advised about a task, from its rows to its next step.

The status and the pages show this, and `morrow task show` prints the status. `contracts.quality.remedies` turns figures
into remedies; the commands that show a verdict use it too.
"""

from dataclasses import dataclass, replace

import msgspec

from contracts.quality.remedies import advise_model
from contracts.quality.skill import Skill
from service.advice.label_doubts import find_far_error, warn_of_jump
from service.advice.next_step import NextStep, Situation, find_next_step
from service.advice.row_warnings import RowWarnings
from service.advice.task_warnings import warn, warn_of_bands, warn_of_promise, warn_of_unseen_end, warn_of_withdrawn


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What is wrong with a task, its version and its rows; how good its model is, with advice; and what to do next.

    `promise` are those warnings that contradict the expected error of the version, or what it has learned. `doubts` are
    those that labels are wrong. Nothing else is tried while an error far above its limit says so.
    """

    doubts: list[str]
    promise: list[str]
    warnings: list[str]
    skill: Skill | None
    next_step: NextStep


def advise(found: Situation, rows: RowWarnings) -> Advice:
    """Everything that is advised in this situation. Likely mistakes of rows come first if the model is poor."""
    skill = _advise_model(found, rows)
    warnings = warn(
        found.task,
        found.forecaster,
        found.task_state,
        now=found.now,
        cycle_limit=found.cycle_limit,
        lifecycle=found.lifecycle,
        future=rows.future,
    )
    if skill is not None and find_far_error(found.task_state) is not None:
        skill = msgspec.structs.replace(skill, advice=())
    promise: list[str] = []
    doubts: list[str] = []
    if (forecaster := found.forecaster) is not None:
        ages, realised = forecaster.manifest.ages, found.task_state.realised
        doubts = warn_of_jump(found.task.name, forecaster, found.doubts.former)
        promise = [
            *doubts,
            *warn_of_withdrawn(forecaster, found.task_state),
            *warn_of_unseen_end(forecaster, found.task_state),
            *warn_of_bands(forecaster.version, ages),
            *warn_of_promise(found.task.name, forecaster.version, ages, skill, realised, aside=found.doubts.aside),
        ]
    return Advice(
        doubts=doubts,
        promise=promise,
        warnings=[*dict.fromkeys([*promise, *warnings, *rows.mistakes, *rows.far])],
        skill=skill,
        next_step=find_next_step(replace(found, skill=skill)),
    )


def _advise_model(found: Situation, rows: RowWarnings) -> Skill | None:
    if found.skill is None:
        return None
    return advise_model(found.task, found.skill, rows.mistakes, found.num_known, found.files.events, asked=found.asked)
