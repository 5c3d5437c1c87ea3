"""The log of answered predictions, events by halves, sealed events, hooks, and the options of imports.

**Predictions** are partitioned by their ids, which sort by time. Trainers make a partition for each day; rows of a day
without one go to the partition `predictions_default`.

The previous release logs nothing. A task that it deletes loses its logged predictions by a trigger.

**Options** of an import, such as the column of its moments and their time zone, stand in its row. So the next step of
a task can spell the whole command. Imports of the previous release have none.

**Incomplete events** lack their label, or are a label that waits for its event. The event goes to `events` as soon as
both halves are there, so no reader of that table meets a row without a label. The previous release knows no half. It
stores whole events as before, and a trigger then removes the half that such an event brings with it. A task that it
deletes loses its incomplete events too.

**Sealed events** are rows that have left the table of events for Parquet files in an object store. The tables say which
files there are, what they hold of each window and import, which ids they hold, and which of their rows count no more.

**Scores of answers** are sums over parts of the log, and figures made of them. A trigger notes which part a label
belongs to, also one that the previous release stores.

The previous release knows no sealed events: it would not find them, and would store one a second time. So nothing is
sealed until somebody asks for it, which must wait until the previous release has gone. It may delete a task that has
some: they go with it.

**Hooks** send events about releases, horizons and cycles. Triggers write them to the outbox, so that what a process of
the previous release does is reported as well. A task that it deletes takes its events with it.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, TIMESTAMP

from migrations.hook_tables import add_hooks

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _add_predictions()
    _keep_options_of_imports()
    _add_incomplete_events()
    _add_sealed_events()
    add_hooks()
    _add_answer_scores()


def _keep_options_of_imports() -> None:
    op.add_column("imports", sa.Column("options", JSONB))


def _add_predictions() -> None:
    op.add_column("erasures", sa.Column("num_predictions", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.create_table(
        "predictions",
        sa.Column("id", sa.UUID, primary_key=True),
        sa.Column("task_id", sa.Integer, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("key_name", sa.Text),
        sa.Column("features", JSON),
        sa.Column("answer", JSON, nullable=False),
        sa.CheckConstraint(
            "\"at\" >= '0001-01-01T00:00:00Z' and \"at\" < '10000-01-01T00:00:00Z'",
            name=op.f("predictions_moments_check"),
        ),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index("predictions_task_id_id_idx", "predictions", ["task_id", "id"])
    op.execute("CREATE TABLE predictions_default PARTITION OF predictions DEFAULT")
    op.execute("""
        CREATE FUNCTION delete_predictions_of_task() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            DELETE FROM predictions WHERE task_id = OLD.id;
            RETURN NULL;
        END
        $$
    """)
    op.execute("""
        CREATE TRIGGER delete_predictions_of_task AFTER DELETE ON tasks
        FOR EACH ROW EXECUTE FUNCTION delete_predictions_of_task()
    """)


def _add_incomplete_events() -> None:
    in_calendar = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
    op.create_table(
        "incomplete_events",
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("event_id", sa.Text, primary_key=True),
        sa.Column("received_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("schema_id", sa.Integer, nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True)),
        sa.Column("numbers", ARRAY(sa.Double)),
        sa.Column("categories", ARRAY(sa.Text)),
        sa.Column("label", sa.Text),
        sa.Column("known_at", TIMESTAMP(timezone=True)),
        sa.Column("import_id", sa.BigInteger),
        sa.Column("num_corrections", sa.Integer, nullable=False, server_default=sa.text("0")),
        *(
            sa.CheckConstraint(condition, name=op.f(f"incomplete_events_{name}_check"))
            for name, condition in (
                ("moments", " and ".join(map(in_calendar.format, ("received_at", "at", "known_at")))),
                (
                    "halves",
                    "event_id <> '' and num_corrections >= 0 and case when label is null "
                    "then num_nulls(at, numbers, categories) = 0 and known_at is null "
                    "else label <> '' and num_nonnulls(at, numbers, categories, import_id) = 0 end",
                ),
                (
                    "numbers",
                    "array_ndims(numbers) <= 1 and array_position(numbers, null) is null "
                    "and 'infinity' <> all(numbers) and '-infinity' <> all(numbers)",
                ),
                ("categories", "array_ndims(categories) <= 1 and array_position(categories, null) is null"),
            )
        ),
    )
    op.create_index("incomplete_events_task_id_received_at_idx", "incomplete_events", ["task_id", "received_at"])
    op.create_index(
        "incomplete_events_import_id_idx",
        "incomplete_events",
        ["import_id"],
        postgresql_where=sa.text("import_id IS NOT NULL"),
    )
    for name in ("num_unlabelled", "num_waiting"):
        op.add_column("row_counts", sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")))
    for statement in (_COUNT_INCOMPLETE, _COUNT_EVENTS, _FORGET_COUNTS, _FOLD_COUNTS):
        op.execute(statement)
    for change, transitions in _TRANSITIONS.items():
        op.execute(
            f"CREATE TRIGGER incomplete_events_count_{change.lower()} AFTER {change} ON incomplete_events "
            f"REFERENCING {transitions} FOR EACH STATEMENT EXECUTE FUNCTION count_incomplete()"
        )
    op.execute(
        "CREATE TRIGGER incomplete_events_count_truncate AFTER TRUNCATE ON incomplete_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION forget_counts()"
    )


_TRANSITIONS = {
    "INSERT": "NEW TABLE AS added",
    "UPDATE": "OLD TABLE AS removed NEW TABLE AS added",
    "DELETE": "OLD TABLE AS removed",
}

_COUNT_INCOMPLETE = """
CREATE FUNCTION count_incomplete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO row_counts (task_id, num_unlabelled, num_waiting)
        SELECT task_id, count(*) - count(label), count(label) FROM added GROUP BY task_id;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO row_counts (task_id, num_unlabelled, num_waiting)
        SELECT task_id, count(label) - count(*), -count(label) FROM removed GROUP BY task_id;
    ELSE
        INSERT INTO row_counts (task_id, num_unlabelled, num_waiting)
        SELECT task_id, sum(change) - sum(is_label * change), sum(is_label * change)
        FROM (
            SELECT task_id, (label IS NOT NULL)::integer AS is_label, 1 AS change FROM added
            UNION ALL
            SELECT task_id, (label IS NOT NULL)::integer, -1 FROM removed
        ) AS changed
        GROUP BY task_id HAVING sum(change) <> 0 OR sum(is_label * change) <> 0;
    END IF;
    RETURN NULL;
END $$
"""

# A new event also removes its incomplete half: the features alone, or a label that says the same. A half that another
# transaction holds is left to that one, or to the trainer: an event must wait for no half, as halves wait for events.
_COUNT_EVENTS = """
CREATE OR REPLACE FUNCTION count_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, count(*) FILTER (WHERE superseded_at IS NULL), count(*) FROM added GROUP BY task_id;
        IF EXISTS (SELECT FROM added JOIN incomplete_events USING (task_id, event_id)) THEN
            DELETE FROM incomplete_events WHERE ctid = ANY(ARRAY(
                SELECT incomplete_events.ctid FROM added JOIN incomplete_events USING (task_id, event_id)
                WHERE incomplete_events.label IS NULL OR incomplete_events.label = added.label
                FOR UPDATE OF incomplete_events SKIP LOCKED
            ));
        END IF;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, -count(*) FILTER (WHERE superseded_at IS NULL), -count(*) FROM removed GROUP BY task_id;
    ELSE
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, sum(is_current * change), sum(change)
        FROM (
            SELECT task_id, (superseded_at IS NULL)::integer AS is_current, 1 AS change FROM added
            UNION ALL
            SELECT task_id, (superseded_at IS NULL)::integer, -1 FROM removed
        ) AS changed
        GROUP BY task_id HAVING sum(is_current * change) <> 0 OR sum(change) <> 0;
    END IF;
    RETURN NULL;
END $$
"""

_FORGET_COUNTS = """
CREATE OR REPLACE FUNCTION forget_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'events' THEN
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, -sum(num_events), -sum(num_revisions) FROM row_counts GROUP BY task_id;
    ELSIF TG_TABLE_NAME = 'incomplete_events' THEN
        INSERT INTO row_counts (task_id, num_unlabelled, num_waiting)
        SELECT task_id, -sum(num_unlabelled), -sum(num_waiting) FROM row_counts GROUP BY task_id;
    ELSE
        INSERT INTO row_counts (task_id, num_rejected)
        SELECT task_id, -sum(num_rejected) FROM row_counts GROUP BY task_id;
    END IF;
    RETURN NULL;
END $$
"""

_FOLD_COUNTS = """
CREATE OR REPLACE FUNCTION fold_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        WITH folded AS (
            DELETE FROM row_counts WHERE task_id = NEW.task_id AND id = ANY(ARRAY(
                SELECT id FROM row_counts WHERE task_id = NEW.task_id LIMIT 10000 FOR UPDATE SKIP LOCKED
            ))
            RETURNING num_events, num_revisions, num_rejected, num_unlabelled, num_waiting
        )
        INSERT INTO row_counts (task_id, num_events, num_revisions, num_rejected, num_unlabelled, num_waiting)
        SELECT NEW.task_id, sum(num_events), sum(num_revisions), sum(num_rejected), sum(num_unlabelled),
               sum(num_waiting)
        FROM folded HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END $$
"""


def _add_sealed_events() -> None:
    def task_id(*, is_key: bool = False) -> sa.Column[int]:
        of_task = sa.ForeignKey("tasks.id", ondelete="CASCADE")
        return sa.Column("task_id", sa.Integer, of_task, nullable=False, primary_key=is_key)

    def file_id() -> sa.Column[int]:
        return sa.Column(
            "file_id", sa.BigInteger, sa.ForeignKey("sealed_files.id", ondelete="CASCADE"), primary_key=True
        )

    def moment(name: str, *, is_key: bool = False) -> sa.Column[datetime]:
        return sa.Column(name, TIMESTAMP(timezone=True), nullable=False, primary_key=is_key)

    def in_calendar(table: str, *columns: str) -> sa.CheckConstraint:
        within = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
        return sa.CheckConstraint(
            " and ".join(within.format(column) for column in columns), name=op.f(f"{table}_moments_check")
        )

    op.create_table(
        "sealed_files",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        task_id(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        moment("first_at"),
        moment("last_at"),
        moment("last_known_at"),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("num_moved", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("schema_ids", ARRAY(sa.Integer), nullable=False),
        sa.Column("labels", ARRAY(sa.Text)),
        sa.Column("is_stale", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("trouble", sa.Text),
        moment("sealed_at"),
        sa.UniqueConstraint("task_id", "number", name=op.f("sealed_files_task_id_number_key")),
        in_calendar("sealed_files", "first_at", "last_at", "last_known_at", "sealed_at"),
    )
    op.create_table("taken_rows", file_id(), sa.Column("place", sa.Integer, primary_key=True))
    op.create_table(
        "sealed_windows",
        file_id(),
        moment("start", is_key=True),
        task_id(),
        moment("first_at"),
        moment("last_at"),
        moment("last_received_at"),
        sa.Column("num_rows", sa.Integer, nullable=False),
    )
    op.create_index("sealed_windows_task_id_first_at_idx", "sealed_windows", ["task_id", "first_at"])
    op.create_index("sealed_windows_task_id_last_at_idx", "sealed_windows", ["task_id", "last_at"])
    op.create_table(
        "sealed_imports",
        file_id(),
        sa.Column("import_id", sa.BigInteger, primary_key=True),
        task_id(),
        sa.Column("num_rows", sa.Integer, nullable=False),
    )
    op.create_index("sealed_imports_task_id_import_id_idx", "sealed_imports", ["task_id", "import_id"])
    op.create_table(
        "sealed_ids",
        task_id(is_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True),
        sa.Column("entries", ARRAY(sa.BigInteger), nullable=False),
    )
    op.create_table(
        "sealed_objects",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("store", sa.Text, nullable=False),
        moment("put_at"),
        in_calendar("sealed_objects", "put_at"),
    )
    op.execute(_HASH_ID)
    op.execute(_MAY_BE_SEALED)


# 56 bits of an id. PostgreSQL's own hashes may differ between versions.
_HASH_ID = """
CREATE FUNCTION hash_event_id(event_id text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CAST(CAST('x' || encode(substr(sha256(convert_to(event_id, 'UTF8')), 1, 7), 'hex') AS bit(56)) AS bigint)
$$
"""
_MAY_BE_SEALED = """
CREATE FUNCTION may_be_sealed(task integer, event_id text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT EXISTS (
        SELECT FROM hash_event_id(event_id) AS hash, sealed_ids, unnest(entries) AS entry
        WHERE task_id = task AND bucket = CAST(hash >> 40 AS integer) AND entry >> 23 = hash & 1099511627775
    )
$$
"""


def _add_answer_scores() -> None:
    def task_id() -> sa.Column[int]:
        return sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)

    op.create_table(
        "touched_buckets",
        task_id(),
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("bucket", sa.Text, nullable=False),
    )
    op.create_table(
        "answer_sums",
        task_id(),
        sa.Column("bucket", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("age", sa.Integer, primary_key=True),
        sa.Column("sums", JSON, nullable=False),
    )
    op.create_index("answer_sums_task_id_version_age_idx", "answer_sums", ["task_id", "version", "age"])
    op.create_table(
        "answer_quality",
        task_id(),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("age", sa.Integer, primary_key=True),
        sa.Column("newest", sa.Text, nullable=False),
        sa.Column("scored_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("quality", JSON, nullable=False),
        sa.CheckConstraint(
            "\"scored_at\" >= '0001-01-01T00:00:00Z' and \"scored_at\" < '10000-01-01T00:00:00Z'",
            name=op.f("answer_quality_moments_check"),
        ),
    )
    op.execute(_NOTE_LABELS)
    for change, transitions in {"INSERT": "NEW TABLE AS changed", "UPDATE": "OLD TABLE AS changed"}.items():
        op.execute(
            f"CREATE TRIGGER events_note_labels_{change.lower()} AFTER {change} ON events "
            f"REFERENCING {transitions} FOR EACH STATEMENT EXECUTE FUNCTION note_labels()"
        )


# Ids of answers are UUIDs of version 7. A row that leaves the table has been superseded or retracted before, or is
# sealed, or goes with its task.
_NOTE_LABELS = """
CREATE FUNCTION note_labels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO touched_buckets (task_id, bucket)
    SELECT DISTINCT task_id, left(event_id, 7) FROM changed
    WHERE length(event_id) = 36 AND event_id LIKE '________-____-7___-____-____________'
      AND event_id ~ '^[0-9a-f]{8}-';
    RETURN NULL;
END $$
"""
