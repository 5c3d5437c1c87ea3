"""What all ledgers say of many tasks at once, in one statement: their newest releases, attempts, errors and events.

Each task comes as one document of JSON. A row that was written past the API, such as a moment `infinity`, is valid JSON
too: it makes one document unreadable, where it would end the reading of a table for all tasks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, TextClause, text

from contracts.calibration import Calibration
from contracts.clock import EPOCH, Clock, from_micros, to_micros
from contracts.quality.given_answers import AnswerQuality
from store.database import FIRST_MOMENT, LAST_MOMENT

# Attempts that are read to count failures in a row.
MAX_RECENT = 50

T = TypeVar("T")


class LedgerRelease(msgspec.Struct, frozen=True):
    """A row of `releases`. Of a release only the action, version and time are read, so `verdict` is None."""

    id: int
    version: str
    action: str
    valid_until: datetime
    verdict: dict[str, Any] | None
    actor: str
    reason: str
    at: datetime


class LedgerAttempt(msgspec.Struct, frozen=True, array_like=True):
    """A row of `cycles`, without its verdict."""

    cutoff: datetime
    state: str
    reason: str | None
    ended_at: datetime | None


class LedgerCell(msgspec.Struct, frozen=True, array_like=True):
    """A row of `error_cells` with a finite error, of the version that answers."""

    window: datetime
    error: float
    num_rows: int
    is_complete: bool


class LedgerAnswers(msgspec.Struct, frozen=True, array_like=True):
    """A row of `answer_quality`, of the version that answers."""

    age: int
    quality: AnswerQuality


class Ledgers(msgspec.Struct, frozen=True):
    """What the ledgers say of a task, and of the version that was asked about.

    champion      the version that the newest release or rollback made champion
    released      the newest row of a release
    bound         the newest row that set the end of the version's validity
    attempts      the newest cutoff first
    judged        the verdict of the newest attempt whose candidate was released or held
    realised      by window
    num_windows   complete windows with events, as far as they were counted: only if nothing is judged
    newest        moment of the newest event, future events included
    num_retracted events of imports that the version has read, and that were retracted since
    num_erased    events that were erased since the version was fitted
    num_unlabelled events that wait for their label
    num_waiting   labels that wait for their event
    answered      how right the answers of the version were, by age
    """

    defined_at: datetime
    champion: str | None
    released: LedgerRelease | None
    bound: LedgerRelease | None
    attempts: list[LedgerAttempt]
    judged: dict[str, Any] | None
    realised: list[LedgerCell]
    num_windows: int
    newest: datetime | None
    num_retracted: int
    num_erased: int
    num_unlabelled: int
    num_waiting: int
    answered: list[LedgerAnswers]


class VersionRows(msgspec.Struct, frozen=True):
    """What `releases` says of a version: its newest bound and calibration, and the cutoff of its newest release."""

    valid_until: datetime | None
    calibration: Calibration | None
    cutoff: datetime | None


@dataclass(frozen=True, kw_only=True)
class AskedVersion:
    """The version that answers for a task: its fit's recipe, method and name of its error.

    Its rows are from `trained_from` to `cutoff`, and were read at `read_at` (microseconds).
    """

    version: str
    trained_from: int
    cutoff: int
    read_at: int
    recipe: str
    method: str
    error_name: str


@dataclass(frozen=True, kw_only=True)
class AskedTask:
    """A task to read; windows before `until` (microseconds) count as complete, and `wanted` of them are counted."""

    task_id: int
    clock: Clock
    until: int
    wanted: int
    version: AskedVersion | None = None


@dataclass(frozen=True)
class LedgerDocuments:
    """The two documents of a task, not decoded yet, and whether some of its events have a moment out of the calendar.

    One that cannot be decoded must not hide the other.
    """

    task_id: int
    ledgers: bytes
    version: bytes
    has_unreadable_events: bool

    def read_ledgers(self) -> Ledgers:
        """Raises ValueError for a row that no process can read."""
        return msgspec.json.decode(self.ledgers, type=Ledgers)

    def read_readable_ledgers(self, defined_at: datetime) -> Ledgers:
        """The same without the parts that cannot be read; `defined_at` takes the place of the stored one."""
        parts = msgspec.json.decode(self.ledgers, type=dict[str, msgspec.Raw])
        return Ledgers(
            defined_at=defined_at,
            champion=_read_or_none(parts["champion"], str),
            released=_read_or_none(parts["released"], LedgerRelease),
            bound=_read_or_none(parts["bound"], LedgerRelease),
            attempts=_read_each(parts["attempts"], LedgerAttempt),
            judged=_read_or_none(parts["judged"], dict[str, Any]),
            realised=_read_each(parts["realised"], LedgerCell),
            num_windows=msgspec.json.decode(parts["num_windows"], type=int),
            newest=_read_or_none(parts["newest"], datetime),
            num_retracted=msgspec.json.decode(parts["num_retracted"], type=int),
            num_erased=msgspec.json.decode(parts["num_erased"], type=int),
            num_unlabelled=msgspec.json.decode(parts["num_unlabelled"], type=int),
            num_waiting=msgspec.json.decode(parts["num_waiting"], type=int),
            answered=_read_each(parts["answered"], LedgerAnswers),
        )

    def read_version(self) -> VersionRows:
        """Raises ValueError for a row that no process can read."""
        return msgspec.json.decode(self.version, type=VersionRows)

    def read_bound(self) -> VersionRows:
        """The same without a calibration, which may be what cannot be read."""
        parts = msgspec.json.decode(self.version, type=dict[str, msgspec.Raw])
        decoded = (msgspec.json.decode(parts[name], type=datetime | None) for name in ("valid_until", "cutoff"))
        valid_until, cutoff = decoded
        return VersionRows(valid_until, None, cutoff)


def read_ledgers(connection: Connection, asked: Sequence[AskedTask]) -> Iterable[LedgerDocuments]:
    """The documents of these tasks, in any order; a task that is gone has none."""
    if not asked:
        return []
    versions = [one.version for one in asked]
    rows = connection.execute(
        READ_LEDGERS,
        {
            "task_ids": [one.task_id for one in asked],
            "lengths": [from_micros(one.clock.window) - EPOCH for one in asked],
            "anchors": [from_micros(_first_boundary(one.clock)) for one in asked],
            "untils": [from_micros(one.until) for one in asked],
            "wanted": [one.wanted for one in asked],
            "versions": [None if one is None else one.version for one in versions],
            "begins": [None if one is None else from_micros(one.trained_from) for one in versions],
            "cutoffs": [None if one is None else from_micros(one.cutoff) for one in versions],
            "reads": [None if one is None else from_micros(one.read_at) for one in versions],
            "recipes": [None if one is None else one.recipe for one in versions],
            "methods": [None if one is None else one.method for one in versions],
            "are_losses": [one is not None and one.error_name == "log_loss" for one in versions],
            "most": MAX_RECENT,
            "first": FIRST_MOMENT,
            "last": LAST_MOMENT,
        },
    )
    return [
        LedgerDocuments(task_id, ledgers.encode(), version.encode(), odd) for task_id, ledgers, version, odd in rows
    ]


def _read_or_none(part: msgspec.Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(part, type=kind | None)
    except msgspec.DecodeError:
        return None


def _read_each(parts: msgspec.Raw, kind: type[T]) -> list[T]:
    found = (_read_or_none(part, kind) for part in msgspec.json.decode(parts, type=list[msgspec.Raw]))
    return [one for one in found if one is not None]


def _first_boundary(clock: Clock) -> int:
    """The first boundary between windows in the calendar: `date_bin` counts from it."""
    first = to_micros(FIRST_MOMENT)
    start = clock.window_start(first)
    return start if start >= first else start + clock.window


# Each subquery is a few steps in an index, whatever a task holds. Blank rows of a retraction are dated at the starts of
# their windows. `found` goes from one window that holds an event to
# the next one. A cell's error counts if it is finite: NaN sorts after infinity.
READ_LEDGERS: TextClause = text("""
    SELECT given.task_id,
        CAST(json_build_object(
            'defined_at', tasks.created_at,
            'champion', (
                SELECT version FROM releases WHERE task_id = given.task_id AND action IN ('release', 'rollback')
                ORDER BY id DESC LIMIT 1
            ),
            'released', (
                SELECT json_build_object('id', id, 'version', version, 'action', action, 'valid_until', valid_until,
                    'verdict', NULL, 'actor', actor, 'reason', reason, 'at', at)
                FROM releases WHERE task_id = given.task_id AND action = 'release' ORDER BY id DESC LIMIT 1
            ),
            'bound', (
                SELECT json_build_object('id', id, 'version', version, 'action', action, 'valid_until', valid_until,
                    'verdict', CASE WHEN action = 'release' THEN NULL ELSE verdict END,
                    'actor', actor, 'reason', reason, 'at', at)
                FROM releases WHERE task_id = given.task_id AND version = given.version
                    AND action IN ('release', 'close', 'reopen', 'override')
                ORDER BY id DESC LIMIT 1
            ),
            'attempts', coalesce((
                SELECT json_agg(json_build_array(cutoff, state, reason, ended_at) ORDER BY cutoff DESC, attempt DESC)
                FROM (
                    SELECT cutoff, attempt, state, reason, ended_at FROM cycles WHERE task_id = given.task_id
                    ORDER BY cutoff DESC, attempt DESC LIMIT :most
                ) AS newest
            ), '[]'),
            'judged', judged.verdict,
            'realised', coalesce((
                SELECT json_agg(json_build_array("window", error, num_rows, is_complete) ORDER BY "window")
                FROM (
                    SELECT "window", num_rows, is_complete, CASE WHEN given.is_loss THEN loss ELSE metric END AS error
                    FROM error_cells
                    WHERE task_id = given.task_id AND recipe = given.recipe AND origin = given.cutoff
                        AND method = given.method
                ) AS cells
                WHERE error < 'infinity' AND error > '-infinity'
            ), '[]'),
            'num_windows', CASE WHEN judged.verdict IS NOT NULL THEN 0 ELSE (
                WITH RECURSIVE found AS (
                    SELECT 1 AS place, least((
                        SELECT at FROM events WHERE task_id = given.task_id AND superseded_at IS NULL
                            AND at < given.until AND at >= :first ORDER BY at LIMIT 1
                    ), (
                        SELECT min(first_at) FROM sealed_windows WHERE task_id = given.task_id
                            AND first_at < given.until
                    )) AS oldest
                    UNION ALL
                    SELECT place + 1, least((
                        SELECT at FROM events WHERE task_id = given.task_id AND superseded_at IS NULL
                            AND at < given.until
                            AND at >= date_bin(given.length, found.oldest, given.anchor) + given.length
                        ORDER BY at LIMIT 1
                    ), (
                        SELECT min(first_at) FROM sealed_windows WHERE task_id = given.task_id
                            AND first_at < given.until
                            AND first_at >= date_bin(given.length, found.oldest, given.anchor) + given.length
                    ))
                    FROM found WHERE found.oldest IS NOT NULL AND place < given.wanted
                )
                SELECT count(oldest) FROM found
            ) END,
            'newest', greatest((
                SELECT at FROM events WHERE task_id = given.task_id AND superseded_at IS NULL
                    AND at BETWEEN :first AND :last ORDER BY at DESC LIMIT 1
            ), (SELECT max(last_at) FROM sealed_windows WHERE task_id = given.task_id)),
            'num_retracted', (
                SELECT coalesce(sum(num_retracted), 0) FROM imports
                WHERE task_id = given.task_id AND at <= given.read_at AND retracted_at >= given.read_at AND EXISTS (
                    SELECT FROM events
                    WHERE task_id = given.task_id AND import_id = imports.id AND starts_with(event_id, chr(1))
                        AND at > given.trained_from - given.length AND at < given.cutoff
                )
            ),
            'num_erased', (
                SELECT coalesce(sum(num_events), 0) FROM erasures
                WHERE task_id = given.task_id AND at >= given.read_at
            ),
            'num_unlabelled', halves.num_unlabelled, 'num_waiting', halves.num_waiting,
            'answered', coalesce((
                SELECT json_agg(json_build_array(age, quality) ORDER BY age)
                FROM answer_quality WHERE task_id = given.task_id AND version = given.version
            ), '[]')
        ) AS text),
        CAST(json_build_object(
            'valid_until', (
                SELECT valid_until FROM releases WHERE task_id = given.task_id AND version = given.version
                ORDER BY id DESC LIMIT 1
            ),
            'calibration', (
                SELECT calibration FROM releases
                WHERE task_id = given.task_id AND version = given.version AND calibration IS NOT NULL
                ORDER BY id DESC LIMIT 1
            ),
            'cutoff', (
                SELECT verdict -> 'cutoff' FROM releases
                WHERE task_id = given.task_id AND version = given.version AND action = 'release'
                ORDER BY id DESC LIMIT 1
            )
        ) AS text),
        coalesce((SELECT at < :first FROM events WHERE task_id = given.task_id ORDER BY at LIMIT 1), false)
            OR coalesce((SELECT at > :last FROM events WHERE task_id = given.task_id ORDER BY at DESC LIMIT 1), false)
    FROM unnest(
        CAST(:task_ids AS int[]), CAST(:lengths AS interval[]), CAST(:anchors AS timestamptz[]),
        CAST(:untils AS timestamptz[]), CAST(:wanted AS int[]), CAST(:versions AS text[]),
        CAST(:begins AS timestamptz[]), CAST(:cutoffs AS timestamptz[]), CAST(:reads AS timestamptz[]),
        CAST(:recipes AS text[]), CAST(:methods AS text[]), CAST(:are_losses AS bool[])
    ) AS given(task_id, length, anchor, until, wanted, version, trained_from, cutoff, read_at, recipe,
        method, is_loss)
    JOIN tasks ON tasks.id = given.task_id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(num_unlabelled), 0) AS num_unlabelled, coalesce(sum(num_waiting), 0) AS num_waiting
        FROM row_counts WHERE task_id = given.task_id
    ) AS halves
    LEFT JOIN LATERAL (
        SELECT verdict FROM cycles
        WHERE task_id = given.task_id AND state IN ('released', 'held') AND verdict IS NOT NULL
        ORDER BY cutoff DESC, attempt DESC LIMIT 1
    ) AS judged ON true
""")
