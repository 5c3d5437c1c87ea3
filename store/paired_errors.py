"""Mean errors of our method and of each other one on the same target windows, read from the error matrix at once.

One statement serves one task or all of them, so a list of tasks costs as little as a single status. Cells count as
soon as they are stored and complete. Two errors of one window are compared only if both were scored on the same rows:
after an import, one method is scored again before another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from contracts.clock import MICROSECOND, to_micros
from contracts.verdict import COUNTED_WINDOWS
from store.database import FIRST_MOMENT, LAST_MOMENT

NUM_RECENT = 16


@dataclass(frozen=True, kw_only=True)
class MatrixPart:
    """The cells that count: of one recipe of a task, at its first ages; `window` is a length in microseconds.

    Rivals are scored on the newest `num_rival_windows` windows, and the one that is an `expert` on all.
    """

    task_id: int
    recipe: str
    method: str
    error_name: str
    window: int
    num_ages: int
    num_rival_windows: int = 1
    expert: str | None = None


@dataclass(frozen=True)
class SharedErrors:
    """Mean errors of another method and of ours on the cells that all methods have: one set for all of them.

    `spread` is the standard deviation of the difference of a window; None for one window.
    """

    num_windows: int
    error: float
    ours: float
    spread: float | None = None


@dataclass(frozen=True)
class PairedErrors:
    """Mean errors of another method and of ours on the target windows that both were scored on.

    A window counts once, by its mean over the ages at which both have a complete and finite error. `shared` compares
    all methods with each other; it is None for a rival with less than half of the windows of another one, which would
    leave the others too few. `recent` holds the newest windows, oldest first, each with our error. `num_newest_cells`
    are those of the newest windows that rivals are scored on; `was_scored_lately` says whether a cell was scored within
    the last hour. `num_stale_cells` of the newest windows do not count: one of the two methods was scored there on
    other rows. If no other cell is left, `num_windows` is 0. `spread` is the standard deviation of the
    difference of a window.
    """

    method: str
    num_windows: int
    error: float
    ours: float
    shared: SharedErrors | None
    recent: tuple[tuple[int, float], ...]
    num_cells: int
    num_newest_cells: int
    was_scored_lately: bool
    num_stale_cells: int = 0
    spread: float | None = None


def read_paired_errors(
    connection: Connection, parts: Sequence[MatrixPart], *, only: str | None = None
) -> dict[int, list[PairedErrors]]:
    """Task id -> every other method with errors on our windows, by name; with `only`, that method alone."""
    if not parts:
        return {}
    rows = connection.execute(
        _READ,
        {
            "task_ids": [part.task_id for part in parts],
            "recipes": [part.recipe for part in parts],
            "methods": [part.method for part in parts],
            "are_losses": [part.error_name == "log_loss" for part in parts],
            "lengths": [part.window * MICROSECOND for part in parts],
            "nums_ages": [part.num_ages for part in parts],
            "nums_rival_windows": [part.num_rival_windows for part in parts],
            "experts": [part.expert for part in parts],
            "only": only,
            "num_windows": COUNTED_WINDOWS,
            "num_recent": NUM_RECENT,
        },
    )
    found: dict[int, list[PairedErrors]] = {}
    for (
        task_id,
        method,
        num_windows,
        error,
        ours,
        num_shared,
        *both,
        windows,
        errors,
        num,
        num_new,
        late,
        stale,
        spread,
    ) in rows:
        recent = tuple((to_micros(window), own) for window, own in zip(windows, errors, strict=True))[::-1]
        shared = SharedErrors(num_shared, *both) if num_shared else None
        pair = PairedErrors(method, num_windows, error, ours, shared, recent, num, num_new, late, stale, spread)
        found.setdefault(task_id, []).append(pair)
    return found


def find_unreadable_cells(connection: Connection, part: MatrixPart) -> str | None:
    """A sentence about cells that are left out, since one of their moments is out of the calendar; None without any."""
    num_cells = connection.execute(
        _COUNT_UNREADABLE,
        {
            "task_id": part.task_id,
            "recipe": part.recipe,
            "reach": 3 * COUNTED_WINDOWS * part.window * MICROSECOND,
            "first": FIRST_MOMENT,
            "last": LAST_MOMENT,
            "most": _MAX_COUNTED,
        },
    ).scalar_one()
    if not num_cells:
        return None
    count = f"{num_cells} or more" if num_cells == _MAX_COUNTED else str(num_cells)
    between = "BETWEEN '0001-01-01Z' AND '9999-12-31Z'"
    return (
        f"Rows of the table error_cells cannot be read ({count}): origin, window or scored_at is out of the years 1 to "
        "9999. They were written past the API and count for nothing: delete those with "
        f'task_id = {part.task_id} AND NOT (origin {between} AND "window" {between} AND scored_at {between}).'
    )


_MAX_COUNTED = 100

# The same cells as below, and those whose origin is out of the calendar. Each part is a range of the primary key.
_COUNT_UNREADABLE = text("""
    WITH cell AS (
        SELECT * FROM error_cells WHERE task_id = :task_id AND recipe = :recipe
    )
    SELECT count(*) FROM (
        (SELECT FROM cell WHERE origin < :first LIMIT :most)
        UNION ALL
        (SELECT FROM cell WHERE origin > :last LIMIT :most)
        UNION ALL
        (SELECT FROM cell WHERE origin <= :last AND origin >= greatest(:first, (
                SELECT max(origin) FROM cell WHERE origin <= :last
            ) - CAST(:reach AS interval))
            AND NOT ("window" BETWEEN :first AND :last AND scored_at BETWEEN :first AND :last)
         LIMIT :most)
        LIMIT :most
    ) AS found
""")

# Errors that are not finite sort after every finite one, so one comparison leaves out infinity and NaN. Origins far
# before the newest cannot hold one of the newest windows, and are not read. Neither are moments beyond the calendar,
# written past the API: the row of one task must not hide those of all others.
_READ = text("""
    WITH part AS (
        SELECT given.*, newest.origin - 3 * :num_windows * given.length AS since FROM unnest(
            CAST(:task_ids AS int[]), CAST(:recipes AS text[]), CAST(:methods AS text[]),
            CAST(:are_losses AS bool[]), CAST(:lengths AS interval[]), CAST(:nums_ages AS int[]),
            CAST(:nums_rival_windows AS int[]), CAST(:experts AS text[])
        ) AS given(task_id, recipe, own, is_loss, length, num_ages, num_rival_windows, expert)
        CROSS JOIN LATERAL (
            SELECT max(origin) AS origin FROM error_cells
            WHERE task_id = given.task_id AND recipe = given.recipe AND origin < '10000-01-01T00:00:00Z'
        ) AS newest
    ), scored AS (
        SELECT part.task_id, part.own, part.num_rival_windows, part.expert, cell.method, cell.origin, cell."window",
            cell.scored_at, cell.num_rows, cell.num_revisions,
            CASE WHEN part.is_loss THEN cell.loss ELSE cell.metric END AS error
        FROM part JOIN error_cells AS cell ON cell.task_id = part.task_id AND cell.recipe = part.recipe
            AND cell.origin >= part.since AND cell."window" < cell.origin + part.num_ages * part.length
            AND cell.origin < '10000-01-01T00:00:00Z'
            AND cell."window" >= '0001-01-01T00:00:00Z' AND cell."window" < '10000-01-01T00:00:00Z'
        WHERE cell.is_complete AND cell.method NOT IN ('mixture', 'alone')
            AND CASE WHEN part.is_loss THEN cell.loss ELSE cell.metric END < 'infinity'
            AND (CAST(:only AS text) IS NULL OR cell.method IN (part.own, :only))
    ), ours AS (
        SELECT *, dense_rank() OVER (PARTITION BY task_id ORDER BY "window" DESC) AS place
        FROM scored WHERE method = own
    ), pairing AS (
        SELECT (ours.num_rows, ours.num_revisions) <> (other.num_rows, other.num_revisions) AS is_stale,
            ours.task_id, other.method, ours.origin, ours."window", other.error, ours.error AS own_error,
            other.method IS NOT DISTINCT FROM ours.expert AS is_expert,
            ours.place <= ours.num_rival_windows AS is_newest, greatest(ours.scored_at, other.scored_at) AS scored_at
        FROM ours JOIN scored AS other USING (task_id, origin, "window")
        WHERE ours.place <= :num_windows AND other.method <> ours.own
    ), cell AS (
        SELECT * FROM pairing WHERE NOT is_stale
    ), stale AS (
        SELECT task_id, method, CAST(count(*) FILTER (WHERE is_newest) AS int) AS num_cells, max(scored_at) AS scored_at
        FROM pairing WHERE is_stale GROUP BY task_id, method
    ), compared AS (
        SELECT task_id, method, count(*) OVER (PARTITION BY task_id) AS num_methods FROM (
            SELECT *, max(num_windows) FILTER (WHERE NOT is_everywhere) OVER (PARTITION BY task_id) AS most FROM (
                SELECT task_id, method, count(DISTINCT "window") AS num_windows,
                    method = 'naive' OR bool_or(is_expert) AS is_everywhere
                FROM cell GROUP BY task_id, method
            ) AS scored_on
        ) AS found WHERE is_everywhere OR 2 * num_windows >= most
    ), shared AS (
        SELECT task_id, origin, "window" FROM cell JOIN compared USING (task_id, method)
        GROUP BY task_id, origin, "window" HAVING count(*) = max(num_methods)
    ), pair AS (
        SELECT task_id, method, "window", avg(error) AS error, avg(own_error) AS own_error,
            avg(error) FILTER (WHERE is_shared) AS shared_error, avg(own_error) FILTER (WHERE is_shared) AS shared_own,
            count(*) AS num_cells, count(*) FILTER (WHERE is_newest) AS num_newest_cells, max(scored_at) AS scored_at
        FROM (
            SELECT cell.*, num_methods IS NOT NULL AND shared.origin IS NOT NULL AS is_shared
            FROM cell LEFT JOIN compared USING (task_id, method) LEFT JOIN shared USING (task_id, origin, "window")
        ) AS marked GROUP BY task_id, method, "window"
    )
    SELECT task_id, method, count("window"), coalesce(avg(error), 0), coalesce(avg(own_error), 0),
        count(shared_error), avg(shared_error), avg(shared_own), stddev_samp(shared_own - shared_error),
        (array_agg("window" ORDER BY "window" DESC))[1 : least(:num_recent, count("window"))],
        (array_agg(own_error ORDER BY "window" DESC))[1 : least(:num_recent, count("window"))],
        CAST(coalesce(sum(pair.num_cells), 0) AS int), CAST(coalesce(sum(num_newest_cells), 0) AS int),
        greatest(max(pair.scored_at), max(stale.scored_at)) > now() - interval '1 hour',
        coalesce(max(stale.num_cells), 0), stddev_samp(own_error - error)
    FROM pair FULL JOIN stale USING (task_id, method) GROUP BY task_id, method ORDER BY task_id, method
""")
