"""Imports, cutoffs that are released once more, changes of tasks, and constraints that keep unreadable rows out.

**Imports** have ids, so that the rows of a mistaken one can be found and retracted. Rows of the previous release and of
single requests belong to no import. A digest of its file lets the same content be recognised.

**A released cutoff may be trained once more**: an attempt names the released one that it replaces. The unique index
allows one release for each released attempt that is replaced, and one for none. So two trainers still cannot release
the same attempt twice. The previous release names no attempt, so the new index means the same to it. A running attempt
that another one must follow is marked.

**Tasks** are paused, archived, renamed or deleted, and that has a history.

**Kept fits** that trainers share through an object store have a ledger: which object is the fit of an origin, and which
objects were written.

**Constraints** keep out what no process of Morrow can read, such as a moment `infinity` written past the API. One such
row stopped the follower of every task. Rows that are there are not checked: some may break them, and count for nothing.

**Touched tasks** are noted by triggers, so that a process reads what has changed and not every task. The previous
release's writes are noted too.

**Counters** of each task's rows are kept by triggers, so that rows of the previous release are counted too. They only
ever add rows, which nobody waits for; one in some hundred folds those of its task into one.
`store.tasks.row_counts` adds them up.

**Keys** may be for some tasks only. The previous release refuses such keys (`store.api_keys`).

**The installation** gets a name of its own, which marks what it writes to MLflow.

**Indices** lead to the failed cycles, the newest begun cycle and the newest windows of a task, whatever its history.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy import exists, select
from sqlalchemy import table as sql_table
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    _add_imports()
    _recognise_imported_files()
    _let_cutoffs_be_released_again()
    _add_task_changes()
    _add_kept_fits()
    _add_trouble_of_renamings()
    _keep_out_unreadable_rows()
    _note_touched_tasks()
    _count_rows()
    _index_newest_rows()
    _limit_keys_to_tasks()
    _name_installation()


def _add_imports() -> None:
    op.create_table(
        "imports",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("retracted_at", TIMESTAMP(timezone=True)),
        sa.Column("retraction_actor", sa.Text),
        sa.Column("retraction_reason", sa.Text),
        sa.Column("num_retracted", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    op.create_index("imports_task_id_idx", "imports", ["task_id", "id"])
    op.add_column("events", sa.Column("import_id", sa.BigInteger))
    op.create_index(
        "events_import_id_idx",
        "events",
        ["import_id"],
        postgresql_where=sa.text("import_id IS NOT NULL"),
    )


def _recognise_imported_files() -> None:
    """A digest of an imported file, so that the same content under another name is noticed."""
    op.add_column("imports", sa.Column("digest", sa.Text))


def _let_cutoffs_be_released_again() -> None:
    op.add_column("cycles", sa.Column("replaces", sa.BigInteger))
    op.add_column("cycles", sa.Column("followed", sa.Boolean, nullable=False, server_default=sa.false()))
    op.drop_index("cycles_one_released_key", "cycles")
    op.create_index(
        "cycles_one_release_key",
        "cycles",
        ["task_id", "cutoff", sa.text("coalesce(replaces, 0)")],
        unique=True,
        postgresql_where=sa.text("state = 'released'"),
    )


def _add_task_changes() -> None:
    op.add_column("tasks", sa.Column("lifecycle", sa.Text, nullable=False, server_default="active"))
    op.add_column("tasks", sa.Column("registry_name", sa.Text))
    op.create_check_constraint(
        op.f("tasks_lifecycle_check"), "tasks", "lifecycle in ('active', 'paused', 'archived', 'deleting')"
    )
    op.create_table(
        "task_changes",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("new_name", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("contents", JSONB),
        sa.CheckConstraint(
            "action in ('pause', 'resume', 'archive', 'unarchive', 'rename', 'delete', 'deleted')",
            name=op.f("task_changes_action_check"),
        ),
        sa.CheckConstraint(
            "\"at\" >= '0001-01-01T00:00:00Z' and \"at\" < '10000-01-01T00:00:00Z'",
            name=op.f("task_changes_moments_check"),
        ),
    )
    op.create_index("task_changes_name_idx", "task_changes", ["name", "id"])
    op.create_index("task_changes_task_id_idx", "task_changes", ["task_id", "id"])


def _note_touched_tasks() -> None:
    op.create_table(
        "touched_tasks",
        sa.Column("transaction_id", sa.BigInteger, primary_key=True),
        sa.Column("task_id", sa.Integer, primary_key=True),
        sa.Column("noted_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.execute(_NOTE_ROW)
    op.execute(_NOTE_ROWS)
    for table in ("tasks", "schemas", "choices", "releases", "cycles"):
        events = "INSERT OR DELETE" if table == "cycles" else "INSERT OR UPDATE OR DELETE"
        op.execute(
            f"CREATE TRIGGER {table}_note_touched AFTER {events} ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION note_touched_task()"
        )
    op.execute(_NOTE_CYCLE)
    for table in ("error_cells", "kept_fits"):
        for event, rows in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
            op.execute(
                f"CREATE TRIGGER {table}_note_{event.lower()} AFTER {event} ON {table} "
                f"REFERENCING {rows} TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION note_touched_tasks()"
            )


def _add_kept_fits() -> None:
    op.create_table(
        "kept_fits",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("recipe", sa.Text, primary_key=True),
        sa.Column("origin", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("kept_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("lost_at", TIMESTAMP(timezone=True)),
    )
    op.create_index("kept_fits_store_digest_idx", "kept_fits", ["store", "digest"])
    op.create_index("kept_fits_task_id_idx", "kept_fits", ["task_id", "store"])
    op.create_table(
        "fit_objects",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("put_at", TIMESTAMP(timezone=True), nullable=False),
    )
    op.create_index("fit_objects_store_put_at_idx", "fit_objects", ["store", "put_at"])


def _add_trouble_of_renamings() -> None:
    op.add_column("tasks", sa.Column("renaming_trouble", sa.Text))


def _keep_out_unreadable_rows() -> None:
    for table, columns in _MOMENTS.items():
        conditions = [_IN_CALENDAR.format(column) for column in columns]
        _add_check(table, "moments", " and ".join(conditions))
    for table, name, condition in _CHECKS:
        _add_check(table, name, condition)


def _add_check(table: str, name: str, condition: str) -> None:
    has_rows = op.get_bind().execute(select(exists(select(1).select_from(sql_table(table))))).scalar_one()
    how = " NOT VALID" if has_rows else ""
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_{name}_check CHECK ({condition}){how}")


# The functions of `touched_tasks`: by row for tables that are written a row at a time, else by statement.
_NOTE_ROW = """
CREATE FUNCTION note_touched_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written record;
    touched int;
BEGIN
    IF TG_OP = 'DELETE' THEN written := OLD; ELSE written := NEW; END IF;
    IF TG_TABLE_NAME = 'tasks' THEN touched := written.id; ELSE touched := written.task_id; END IF;
    INSERT INTO touched_tasks (transaction_id, task_id)
    VALUES (pg_current_xact_id()::text::bigint, touched) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$
"""
_NOTE_ROWS = """
CREATE FUNCTION note_touched_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO touched_tasks (transaction_id, task_id)
    SELECT DISTINCT pg_current_xact_id()::text::bigint, task_id FROM written ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$
"""
# The lease of a running cycle is renewed every few seconds, which changes nothing that is shown.
_NOTE_CYCLE = """
CREATE TRIGGER cycles_note_update AFTER UPDATE ON cycles FOR EACH ROW
WHEN ((OLD.task_id, OLD.cutoff, OLD.attempt, OLD.state, OLD.version, OLD.reason, OLD.ended_at, OLD.verdict)
    IS DISTINCT FROM
    (NEW.task_id, NEW.cutoff, NEW.attempt, NEW.state, NEW.version, NEW.reason, NEW.ended_at, NEW.verdict))
EXECUTE FUNCTION note_touched_task()
"""


def _limit_keys_to_tasks() -> None:
    op.add_column("api_keys", sa.Column("task_ids", ARRAY(sa.Integer)))


def _name_installation() -> None:
    op.create_table(
        "installation",
        sa.Column("is_ours", sa.Boolean, primary_key=True, server_default=sa.true()),
        sa.Column("name", sa.Text, nullable=False, server_default=sa.text("gen_random_uuid()::text")),
        sa.CheckConstraint("is_ours", name=op.f("installation_is_ours_check")),
    )
    op.execute("INSERT INTO installation DEFAULT VALUES")


def _count_rows() -> None:
    """Create the counters, and fill them once. The triggers lock their tables, so no row comes in between."""
    op.create_table(
        "row_counts",
        sa.Column("task_id", sa.Integer, primary_key=True),
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("num_events", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("num_revisions", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("num_rejected", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    for statement in (_COUNT_EVENTS, _COUNT_REFUSED, _FORGET_COUNTS, _FOLD_COUNTS):
        op.execute(statement)
    for table, function in (("events", "count_events"), ("rejected_events", "count_refused")):
        for change, transitions in _TRANSITIONS.items():
            op.execute(
                f"CREATE TRIGGER {table}_count_{change.lower()} AFTER {change} ON {table} "
                f"REFERENCING {transitions} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            )
        op.execute(
            f"CREATE TRIGGER {table}_count_truncate AFTER TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION forget_counts()"
        )
    op.execute(
        "INSERT INTO row_counts (task_id, num_events, num_revisions) "
        "SELECT task_id, count(*) FILTER (WHERE superseded_at IS NULL), count(*) FROM events GROUP BY task_id"
    )
    op.execute(
        "INSERT INTO row_counts (task_id, num_rejected) SELECT task_id, count(*) FROM rejected_events GROUP BY task_id"
    )
    op.execute(
        "CREATE TRIGGER row_counts_fold AFTER INSERT ON row_counts FOR EACH ROW WHEN (NEW.id % 256 = 0) "
        "EXECUTE FUNCTION fold_counts()"
    )


_TRANSITIONS = {
    "INSERT": "NEW TABLE AS added",
    "UPDATE": "OLD TABLE AS removed NEW TABLE AS added",
    "DELETE": "OLD TABLE AS removed",
}

# Nothing is written if nothing is counted differently, as after most corrections of refused rows.
_COUNT_EVENTS = """
CREATE FUNCTION count_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, count(*) FILTER (WHERE superseded_at IS NULL), count(*) FROM added GROUP BY task_id;
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

_COUNT_REFUSED = """
CREATE FUNCTION count_refused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO row_counts (task_id, num_rejected) SELECT task_id, count(*) FROM added GROUP BY task_id;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO row_counts (task_id, num_rejected) SELECT task_id, -count(*) FROM removed GROUP BY task_id;
    ELSE
        INSERT INTO row_counts (task_id, num_rejected)
        SELECT task_id, sum(change)
        FROM (SELECT task_id, 1 AS change FROM added UNION ALL SELECT task_id, -1 FROM removed) AS changed
        GROUP BY task_id HAVING sum(change) <> 0;
    END IF;
    RETURN NULL;
END $$
"""

# TRUNCATE lets nobody else write, so the rows that count are those that can be seen.
_FORGET_COUNTS = """
CREATE FUNCTION forget_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'events' THEN
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT task_id, -sum(num_events), -sum(num_revisions) FROM row_counts GROUP BY task_id;
    ELSE
        INSERT INTO row_counts (task_id, num_rejected)
        SELECT task_id, -sum(num_rejected) FROM row_counts GROUP BY task_id;
    END IF;
    RETURN NULL;
END $$
"""

# It waits for no other transaction, and none waits for it. At a stricter level of isolation, a row that another
# transaction has just folded would be an error.
_FOLD_COUNTS = """
CREATE FUNCTION fold_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        WITH folded AS (
            DELETE FROM row_counts WHERE task_id = NEW.task_id AND id = ANY(ARRAY(
                SELECT id FROM row_counts WHERE task_id = NEW.task_id LIMIT 10000 FOR UPDATE SKIP LOCKED
            ))
            RETURNING num_events, num_revisions, num_rejected
        )
        INSERT INTO row_counts (task_id, num_events, num_revisions, num_rejected)
        SELECT NEW.task_id, sum(num_events), sum(num_revisions), sum(num_rejected) FROM folded HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END $$
"""


def _index_newest_rows() -> None:
    op.create_index("cycles_failed_idx", "cycles", ["task_id", "cutoff"], postgresql_where=sa.text("state = 'failed'"))
    op.create_index("cycles_task_id_started_at_idx", "cycles", ["task_id", "started_at"])
    op.create_index("error_cells_window_idx", "error_cells", ["task_id", "recipe", "window"])


_IN_CALENDAR = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
_MOMENTS = {
    "tasks": ("created_at",),
    "schemas": ("created_at",),
    "choices": ("cutoff", "chosen_at"),
    "events": ("at", "known_at", "received_at", "superseded_at"),
    "erasures": ("at",),
    "rejected_events": ("received_at",),
    "imports": ("at", "retracted_at"),
    "cycles": ("cutoff", "requested_at", "started_at", "ended_at", "lease_until", "read_at"),
    "error_cells": ("origin", "window", "scored_at"),
    "releases": ("valid_until", "at"),
    "kept_fits": ("origin", "kept_at", "lost_at"),
    "fit_objects": ("put_at",),
    "api_keys": ("created_at", "revoked_at"),
}
_CHECKS = (
    ("tasks", "name", "name <> ''"),
    ("schemas", "spec", "jsonb_typeof(spec) = 'object' and revision > 0"),
    ("events", "texts", "revision > 0 and event_id <> '' and (label <> '' or superseded_at is not null)"),
    (
        "events",
        "numbers",
        "array_ndims(numbers) <= 1 and array_position(numbers, null) is null "
        "and 'infinity' <> all(numbers) and '-infinity' <> all(numbers)",
    ),
    ("events", "categories", "array_ndims(categories) <= 1 and array_position(categories, null) is null"),
    (
        "error_cells",
        "figures",
        "num_rows >= 0 and array_position(scores, null) is null and array_position(tempered, null) is null",
    ),
    ("releases", "version", "version <> ''"),
    ("api_keys", "rate", "rate > 0 and rate < 'infinity'"),
)
