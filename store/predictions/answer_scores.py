"""How right a task's answers were: sums by bucket of the log, version and age, and figures by version and age.

Scoring replaces the sums of a whole bucket. Then it measures versions and ages of which a bucket has changed. Readers
meet the figures only, so what they read does not grow with the log.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection, insert, text

from contracts.quality.given_answers import AnswerQuality, AnswerSums, measure
from store.database import answer_sums

# Versions that a status shows, those that answered last.
NUM_VERSIONS = 5
# The age of answers about moments of their version's own rows.
INSIDE_FIT = -1

# A version, and the age of its answers.
Key = tuple[str, int]

_encode = msgspec.json.Encoder().encode
_decode_sums = msgspec.json.Decoder(AnswerSums).decode
_decode_quality = msgspec.json.Decoder(AnswerQuality).decode


@dataclass(frozen=True)
class ScoredAnswers:
    """The figures of one version and age, and when they were last measured."""

    version: str
    age: int
    scored_at: datetime
    quality: AnswerQuality


def lock_scoring(connection: Connection, task_id: int) -> bool:
    """Let no other process score this task's answers until the transaction ends; False if one does now."""
    found: bool = connection.execute(_TRY_LOCK, {"task_id": task_id}).scalar_one()
    return found


def replace_sums(connection: Connection, task_id: int, bucket: str, found: Mapping[Key, AnswerSums]) -> set[Key]:
    """Store the sums of a bucket in place of its former ones; returns the versions and ages to measure again."""
    former = connection.execute(_DELETE_BUCKET, {"task_id": task_id, "bucket": bucket})
    changed = {(version, age) for version, age in former} | {*found}
    if found:
        rows = [
            {"task_id": task_id, "bucket": bucket, "version": version, "age": age, "sums": msgspec.to_builtins(sums)}
            for (version, age), sums in found.items()
        ]
        connection.execute(insert(answer_sums), rows)
    return changed


def delete_sums_before(connection: Connection, task_id: int, bucket: str, size: int) -> tuple[int, set[Key]]:
    """Delete some sums of buckets before this one; returns how many, and the versions and ages to measure again."""
    gone = connection.execute(_DELETE_BEFORE, {"task_id": task_id, "bucket": bucket, "size": size}).all()
    return len(gone), {(version, age) for version, age in gone}


def measure_again(connection: Connection, task_id: int, keys: Collection[Key], now: datetime) -> None:
    """Measure these versions and ages by the sums that are stored now. One without sums has no figures."""
    for version, age in sorted(keys):
        key = {"task_id": task_id, "version": version, "age": age}
        rows = connection.execute(_READ_SUMS, key).all()
        if rows:
            quality = measure([_decode_sums(row.sums) for row in rows])
            given = {"newest": max(row.bucket for row in rows), "quality": _encode(quality).decode(), "now": now}
            connection.execute(_WRITE_QUALITY, key | given)
        else:
            connection.execute(_DELETE_QUALITY, key)


def list_scored_answers(connection: Connection, task_id: int) -> Sequence[ScoredAnswers]:
    """The figures of the versions that answered last, the newest first, by age."""
    rows = connection.execute(_LIST, {"task_id": task_id, "most": NUM_VERSIONS})
    return [ScoredAnswers(row.version, row.age, row.scored_at, _decode_quality(row.quality)) for row in rows]


_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('morrow.answer_scores'), :task_id)")

_DELETE_BUCKET = text("""
    DELETE FROM answer_sums WHERE task_id = :task_id AND bucket = :bucket RETURNING version, age
""")

_DELETE_BEFORE = text("""
    DELETE FROM answer_sums WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM answer_sums WHERE task_id = :task_id AND bucket < :bucket LIMIT :size
    ))
    RETURNING version, age
""")

_READ_SUMS = text("""
    SELECT bucket, CAST(sums AS text) AS sums FROM answer_sums
    WHERE task_id = :task_id AND version = :version AND age = :age ORDER BY bucket
""")

_WRITE_QUALITY = text("""
    INSERT INTO answer_quality (task_id, version, age, newest, scored_at, quality)
    VALUES (:task_id, :version, :age, :newest, :now, CAST(:quality AS json))
    ON CONFLICT (task_id, version, age) DO UPDATE
    SET newest = excluded.newest, scored_at = excluded.scored_at, quality = excluded.quality
""")

_DELETE_QUALITY = text("""
    DELETE FROM answer_quality WHERE task_id = :task_id AND version = :version AND age = :age
""")

_LIST = text("""
    SELECT version, age, scored_at, CAST(quality AS text) AS quality
    FROM answer_quality JOIN (
        SELECT version, max(newest) AS newest FROM answer_quality WHERE task_id = :task_id
        GROUP BY version ORDER BY max(newest) DESC, length(version) DESC, version DESC LIMIT :most
    ) AS asked USING (version)
    WHERE task_id = :task_id
    ORDER BY asked.newest DESC, length(version) DESC, version DESC, age
""")
