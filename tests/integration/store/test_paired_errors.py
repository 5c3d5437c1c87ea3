"""Errors of our method and of others on the same windows, read for several tasks by one statement."""

import math
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event

from contracts.verdict import COUNTED_WINDOWS
from store.error_cells import Cell, record_cells
from store.paired_errors import NUM_RECENT, MatrixPart, PairedErrors, read_paired_errors
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, define


def part_of(schema: Schema, num_ages: int = 1) -> MatrixPart:
    task = schema.task
    return MatrixPart(
        task_id=schema.task_id,
        recipe=task.recipe,
        method=task.training.method,
        error_name=task.error_name,
        window=WEEK,
        num_ages=num_ages,
    )


def cell(place: int, age: int, method: str, loss: float, *, is_complete: bool = True) -> Cell:
    """A cell of the origin this many weeks before the cutoff."""
    origin = CUTOFF - place * WEEK
    return Cell(origin, origin + age * WEEK, method, 50, loss, loss / 10, is_complete=is_complete)


def store(engine: Engine, schema: Schema, *cells: Cell, recipe: str | None = None) -> None:
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, recipe or schema.task.recipe, cells, NOW)


def read(engine: Engine, *parts: MatrixPart, only: str | None = None) -> dict[int, list[PairedErrors]]:
    with engine.connect() as connection:
        return read_paired_errors(connection, parts, only=only)


def test_methods_are_compared_on_the_windows_that_both_were_scored_on(engine: Engine) -> None:
    schema = define(engine)
    store(
        engine,
        schema,
        *(cell(place, 0, "gi", 0.2 + place / 10) for place in range(3)),
        *(cell(place, 0, "naive", 0.6) for place in range(3)),
        cell(0, 0, "gbdt", 0.25),
        cell(1, 0, "gbdt", 9.0, is_complete=False),
        cell(7, 0, "gbdt", 9.0),
    )
    gbdt, naive = read(engine, part_of(schema))[schema.task_id]
    assert (gbdt.method, gbdt.num_windows, gbdt.error, gbdt.ours) == ("gbdt", 1, 0.25, 0.2)
    assert (naive.method, naive.num_windows) == ("naive", 3)
    assert [naive.error, naive.ours] == pytest.approx([0.6, 0.3])
    assert [window for window, _ in naive.recent] == [CUTOFF - 2 * WEEK, CUTOFF - WEEK, CUTOFF]
    assert [error for _, error in naive.recent] == pytest.approx([0.4, 0.3, 0.2])


def test_what_a_fit_would_have_answered_otherwise_is_no_method_of_its_own(engine: Engine) -> None:
    schema = define(engine)
    methods = ("gi", "naive", "mixture", "alone")
    store(engine, schema, *(cell(place, 0, method, 0.2) for place in range(3) for method in methods))
    assert [pair.method for pair in read(engine, part_of(schema))[schema.task_id]] == ["naive"]


@pytest.mark.parametrize("expert", [None, "gbdt"])
def test_an_expert_that_is_scored_everywhere_keeps_no_other_rival_from_being_compared(
    engine: Engine, expert: str | None
) -> None:
    """LightGBM was scored on five windows and the baseline on two of them."""
    schema = define(engine)
    windows = {"gi": 5, "naive": 5, "gbdt": 5, "baseline": 2}
    store(engine, schema, *(cell(place, 0, method, 0.2) for method, count in windows.items() for place in range(count)))
    found = read(engine, replace(part_of(schema), expert=expert))[schema.task_id]
    shared = {pair.method: pair.shared.num_windows if pair.shared else None for pair in found}
    assert shared == (
        {"baseline": None, "gbdt": 5, "naive": 5} if expert is None else {"baseline": 2, "gbdt": 2, "naive": 2}
    )


def test_a_window_counts_once_by_its_mean_over_the_ages_inside_the_horizon(engine: Engine) -> None:
    schema = define(engine)
    cells = [(0, 0, 0.1), (1, 1, 0.3), (1, 0, 0.8), (2, 2, 9.0)]
    for place, age, loss in cells:
        store(engine, schema, cell(place, age, "gi", loss), cell(place, age, "naive", 2 * loss))
    (naive,) = read(engine, part_of(schema, num_ages=2))[schema.task_id]
    assert naive.num_windows == 2
    assert naive.ours == pytest.approx((0.2 + 0.8) / 2)
    assert naive.error == pytest.approx(2 * naive.ours)


def test_errors_that_are_not_finite_and_other_recipes_are_left_out(engine: Engine) -> None:
    schema = define(engine)
    store(engine, schema, cell(0, 0, "gi", math.inf), cell(0, 0, "naive", 0.6))
    store(engine, schema, cell(1, 0, "gi", 0.2), cell(1, 0, "naive", math.nan), cell(1, 0, "gbdt", 0.3))
    store(engine, schema, cell(2, 0, "gi", 0.2), cell(2, 0, "naive", 0.6), recipe="another")
    (gbdt,) = read(engine, part_of(schema))[schema.task_id]
    assert (gbdt.method, gbdt.num_windows) == ("gbdt", 1)


def test_only_the_newest_windows_count(engine: Engine) -> None:
    schema = define(engine)
    places = range(COUNTED_WINDOWS + 10)
    store(engine, schema, *(cell(place, 0, "gi", float(place >= COUNTED_WINDOWS)) for place in places))
    store(engine, schema, *(cell(place, 0, "naive", 1.0) for place in places))
    (naive,) = read(engine, part_of(schema))[schema.task_id]
    assert (naive.num_windows, naive.ours) == (COUNTED_WINDOWS, 0.0)
    assert [window for window, _ in naive.recent] == [CUTOFF - place * WEEK for place in range(NUM_RECENT)][::-1]


def test_a_regression_is_judged_by_its_absolute_error(engine: Engine) -> None:
    schema = define(engine)
    store(engine, schema, cell(0, 0, "gi", 0.2), cell(0, 0, "naive", 0.6))
    (naive,) = read(engine, replace(part_of(schema), error_name="mean_absolute_error"))[schema.task_id]
    assert [naive.ours, naive.error] == pytest.approx([0.02, 0.06])


def test_any_number_of_tasks_takes_one_statement(engine: Engine) -> None:
    schemas = [define(engine) for _ in range(5)]
    for schema in schemas[1:]:
        store(engine, schema, cell(0, 0, "gi", 0.2), cell(0, 0, "naive", 0.6), cell(0, 0, "gbdt", 0.3))
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    found = read(engine, *map(part_of, schemas), only="naive")
    assert len([statement for statement in statements if "error_cells" in statement]) == 1
    assert set(found) == {schema.task_id for schema in schemas[1:]}
    assert {pair.method for pairs in found.values() for pair in pairs} == {"naive"}
    assert read(engine) == {}


def test_errors_of_other_rows_are_not_compared(engine: Engine) -> None:
    """A wrong import joined the newest window: our method and naive were scored again, the baseline not yet."""
    schema = define(engine)
    store(
        engine, schema, *(cell(place, 0, method, 1.0) for place in range(4) for method in ("gi", "naive", "baseline"))
    )
    wrong = [replace(cell(0, 0, method, 30.0), num_rows=74, num_revisions=24) for method in ("gi", "naive")]
    store(engine, schema, *wrong)
    part = replace(part_of(schema), num_rival_windows=16)
    baseline, naive = read(engine, part)[schema.task_id]
    assert (baseline.num_windows, baseline.error, baseline.ours, baseline.num_stale_cells) == (3, 1.0, 1.0, 1)
    assert (naive.num_windows, naive.num_stale_cells) == (4, 0)
    assert naive.ours == pytest.approx((3 * 1.0 + 30.0) / 4)
    assert naive.shared is not None
    assert (naive.shared.num_windows, naive.shared.ours) == (3, 1.0)


def test_a_method_that_was_scored_on_other_rows_only_is_listed_without_errors(engine: Engine) -> None:
    schema = define(engine)
    store(engine, schema, cell(0, 0, "gi", 1.0), cell(0, 0, "naive", 2.0))
    store(engine, schema, replace(cell(0, 0, "gbdt", 0.5), num_rows=26))
    gbdt, naive = read(engine, part_of(schema))[schema.task_id]
    assert (gbdt.num_windows, gbdt.num_cells, gbdt.recent, gbdt.num_stale_cells) == (0, 0, (), 1)
    assert (naive.num_windows, naive.ours) == (1, 1.0)
