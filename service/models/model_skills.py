"""How good the models of tasks are: the figures behind the status, the pages and `morrow task show`."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from sqlalchemy import Connection

from contracts.quality.remedies import advise_model
from contracts.quality.skill import ComparedError, Skill, compare_errors, find_margin, score
from contracts.quality.trust import Trust, judge_trust
from contracts.verdict import EXTRA_WINDOWS
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import TaskState, say_withdrawn
from store.error_cells import NAIVE
from store.paired_errors import MatrixPart, PairedErrors, SharedErrors, read_paired_errors
from store.tasks.catalog import Schema


def read_skills(
    connection: Connection,
    schemas: Sequence[Schema],
    forecasters: Mapping[str, Forecaster],
    states: Mapping[int, TaskState],
) -> dict[int, Skill]:
    """Task id -> skill of the version that answers, inside its horizon, else of fresh fits of the task's own recipe.

    A task is left out until windows of its recipe are scored. One statement reads all of them.
    """
    parts = [find_part(one, forecasters.get(one.task.name), states.get(one.task_id)) for one in schemas]
    found = read_paired_errors(connection, parts)
    skills = {
        schema.task_id: find_skill(schema, forecasters.get(schema.task.name), found.get(schema.task_id, []))
        for schema in schemas
    }
    return {task_id: skill for task_id, skill in skills.items() if skill is not None}


def find_part(schema: Schema, forecaster: Forecaster | None, task_state: TaskState | None) -> MatrixPart:
    """The cells by which the version that answers is judged.

    Without one, as for an archived task, those of the task's own recipe inside the horizon that was validated last.
    """
    horizon = forecaster.manifest.horizon if forecaster is not None else _last_horizon(task_state)
    task = schema.task if forecaster is None else forecaster.task
    return MatrixPart(
        task_id=schema.task_id,
        recipe=task.recipe if forecaster is None else forecaster.manifest.recipe,
        method=task.training.method,
        error_name=task.error_name if forecaster is None else forecaster.manifest.error_name,
        window=task.clock.window,
        num_ages=max(1, horizon),
        num_rival_windows=task.guard.min_pairs + EXTRA_WINDOWS,
        expert="gbdt" if task.training.can_mix else None,
    )


def _last_horizon(task_state: TaskState | None) -> int:
    """The horizon of the released version by its verdict; 0 if nothing is released."""
    if task_state is None or task_state.champion is None or task_state.judged is None:
        return 0
    return 0 if task_state.judged.matrix is None else task_state.judged.matrix.horizon


def find_trust(forecaster: Forecaster | None, skill: Skill | None, task_state: TaskState) -> Trust:
    """Whether the version that answers can be trusted: by its skill, and by its complete windows since the release."""
    bands = {} if forecaster is None else {age.age: age.high for age in forecaster.manifest.ages}
    followed = [one for one in task_state.realised if one.is_complete and one.age in bands]
    live = _find_live(forecaster, task_state)
    is_closed = forecaster is not None and task_state.closing is not None
    withdrawn = None if forecaster is None else say_withdrawn(forecaster, task_state)
    are_above = [one.error > bands[one.age] for one in followed]
    return judge_trust(skill, are_above, is_closed=is_closed, live=live, withdrawn=withdrawn)


def _find_live(forecaster: Forecaster | None, task_state: TaskState) -> tuple[float, float] | None:
    """The mean error since the release, of unfinished windows too, and the one that was promised for these ages."""
    means = {} if forecaster is None else {age.age: age.mean for age in forecaster.manifest.ages}
    errors = [(one.error, means[one.age]) for one in task_state.realised if one.age in means]
    return (fmean(own for own, _ in errors), fmean(promised for _, promised in errors)) if errors else None


def find_skill(schema: Schema, forecaster: Forecaster | None, pairs: Sequence[PairedErrors]) -> Skill | None:
    """The skill of a task's model by its errors compared with every other method's; None without those of naive."""
    found = [_compare(pair.method, pair) for pair in _naive_first(pairs) if pair.num_windows]
    if not found or found[0].method != NAIVE:
        return None
    shared = [_compare(pair.method, pair.shared) for pair in _naive_first(pairs) if pair.shared is not None]
    error_name = schema.task.error_name if forecaster is None else forecaster.manifest.error_name
    rescored = _find_rescored(schema, pairs)
    pending = [one for one in _find_pending(schema, pairs) if one not in rescored]
    skill = compare_errors(error_name, found[0], found[1:], pending, shared or found[:1], rescored=rescored)
    return advise_model(schema.task, skill, asked=None if schema.choice is None else schema.choice.asked)


def _naive_first(pairs: Sequence[PairedErrors]) -> list[PairedErrors]:
    return sorted(pairs, key=lambda pair: pair.method != NAIVE)


def _compare(method: str, errors: PairedErrors | SharedErrors) -> ComparedError:
    return ComparedError(
        method=method,
        num_windows=errors.num_windows,
        error=errors.error,
        ours=errors.ours,
        skill=score(errors.ours, errors.error),
        margin=find_margin(errors.spread, errors.num_windows, errors.error),
    )


def _find_pending(schema: Schema, pairs: Sequence[PairedErrors]) -> list[str]:
    """The rivals that still lack cells of the newest windows.

    A rival counts as given up once no cell was scored for an hour, or if the task is not retrained.
    """
    naive = next((pair for pair in pairs if pair.method == NAIVE), None)
    if naive is None or schema.lifecycle != "active" or not any(pair.was_scored_lately for pair in pairs):
        return []
    num_cells = {pair.method: pair.num_cells for pair in pairs}
    rivals = [one for one in schema.task.guard.rivals if one != schema.task.training.method]
    return [one for one in rivals if num_cells.get(one, 0) < naive.num_newest_cells]


def _find_rescored(schema: Schema, pairs: Sequence[PairedErrors]) -> list[str]:
    """The rivals with errors of rows that have changed since; they are given up as pending ones are."""
    if schema.lifecycle != "active" or not any(pair.was_scored_lately for pair in pairs):
        return []
    stale = {pair.method for pair in pairs if pair.num_stale_cells}
    return [one for one in schema.task.guard.rivals if one in stale]
