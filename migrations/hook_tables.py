"""Hooks, their outbox, and the triggers that fill it: a part of revision 0009, in a file of its own."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP


def add_hooks() -> None:
    """Create the tables, and the triggers that write to the outbox."""

    def moment(name: str, *, nullable: bool = False) -> sa.Column[datetime]:
        return sa.Column(name, TIMESTAMP(timezone=True), nullable=nullable)

    def number(name: str, kind: type[sa.Integer]) -> sa.Column[int]:
        return sa.Column(name, kind, nullable=False, server_default=sa.text("0"))

    def in_calendar(table: str, *columns: str) -> sa.CheckConstraint:
        within = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
        return sa.CheckConstraint(
            " and ".join(within.format(column) for column in columns), name=op.f(f"{table}_moments_check")
        )

    op.create_table(
        "hooks",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("task_ids", ARRAY(sa.Integer)),
        sa.Column("types", ARRAY(sa.Text)),
        sa.Column("actor", sa.Text, nullable=False),
        moment("created_at"),
        number("num_delivered", sa.BigInteger),
        number("num_failed", sa.BigInteger),
        sa.UniqueConstraint("name", name=op.f("hooks_name_key")),
        in_calendar("hooks", "created_at"),
        sa.CheckConstraint("name <> ''", name=op.f("hooks_name_check")),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("hook_id", sa.Integer, sa.ForeignKey("hooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id", ondelete="CASCADE")),
        sa.Column("event_id", sa.UUID, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", JSONB, nullable=False),
        moment("at"),
        sa.Column("added_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'waiting'")),
        number("num_attempts", sa.Integer),
        moment("due_at", nullable=True),
        sa.Column("answer", sa.Text),
        moment("ended_at", nullable=True),
        in_calendar("deliveries", "at", "added_at", "due_at", "ended_at"),
        sa.CheckConstraint("state in ('waiting', 'delivered', 'dead')", name=op.f("deliveries_state_check")),
        sa.UniqueConstraint("hook_id", "event_id", name=op.f("deliveries_hook_id_event_id_key")),
    )
    for state in ("waiting", "dead"):
        op.create_index(
            f"deliveries_{state}_idx",
            "deliveries",
            ["hook_id", "task_id", "id"],
            postgresql_where=sa.text(f"state = '{state}'"),
        )
    op.create_index("deliveries_ended_at_idx", "deliveries", ["ended_at"])
    op.create_index("deliveries_task_id_idx", "deliveries", ["task_id"])
    op.create_table(
        "expiries",
        sa.Column("release_id", sa.BigInteger, sa.ForeignKey("releases.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("type", sa.Text, primary_key=True),
        moment("at"),
        in_calendar("expiries", "at"),
        sa.CheckConstraint(
            "type in ('morrow.version.expiring', 'morrow.version.expired')", name=op.f("expiries_type_check")
        ),
    )
    for statement in (_SAY_MOMENT, _ADD_DELIVERIES, _REPORT_RELEASE, _REPORT_CYCLE, _REPORT_EXPIRY):
        op.execute(statement)
    op.execute(
        "CREATE TRIGGER releases_report AFTER INSERT ON releases FOR EACH ROW "
        "WHEN (NEW.action <> 'calibrate') EXECUTE FUNCTION report_release()"
    )
    op.execute(
        "CREATE TRIGGER cycles_report AFTER UPDATE OF state ON cycles FOR EACH ROW "
        "WHEN (OLD.state <> NEW.state AND NEW.state IN ('held', 'failed')) EXECUTE FUNCTION report_cycle()"
    )
    op.execute("CREATE TRIGGER expiries_report AFTER INSERT ON expiries FOR EACH ROW EXECUTE FUNCTION report_expiry()")


_SAY_MOMENT = """
CREATE FUNCTION say_moment(moment timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$
"""

# One row for each hook that is for this task and type and was made by then; all with the same id of the event.
_ADD_DELIVERIES = """
CREATE FUNCTION add_deliveries(
    event uuid, task integer, event_type text, happened timestamptz, event_data jsonb, made_by timestamptz
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO deliveries (hook_id, task_id, event_id, type, data, at)
    SELECT hooks.id, task, event, event_type,
        jsonb_build_object('task', tasks.name) || jsonb_strip_nulls(event_data), happened
    FROM hooks JOIN tasks ON tasks.id = task
    WHERE (hooks.task_ids IS NULL OR task = ANY(hooks.task_ids))
        AND (hooks.types IS NULL OR event_type = ANY(hooks.types))
        AND hooks.created_at <= made_by
$$
"""

_REPORT_RELEASE = """
CREATE FUNCTION report_release() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    figures jsonb := CASE WHEN jsonb_typeof(NEW.verdict) = 'object' THEN NEW.verdict ELSE '{}' END;
    former record;
    event_type text;
BEGIN
    IF NOT EXISTS (SELECT FROM hooks) THEN
        RETURN NULL;
    END IF;
    SELECT action, valid_until INTO former FROM releases
    WHERE task_id = NEW.task_id AND version = NEW.version AND id < NEW.id
        AND action IN ('release', 'close', 'reopen', 'override')
    ORDER BY id DESC LIMIT 1;
    event_type := CASE
        WHEN NEW.action = 'release' THEN 'morrow.version.released'
        WHEN NEW.action = 'rollback' THEN 'morrow.version.rolled_back'
        WHEN NEW.action = 'close' THEN 'morrow.horizon.closed'
        WHEN NEW.action = 'reopen' THEN 'morrow.horizon.reopened'
        WHEN former.action = 'close' AND NEW.valid_until > former.valid_until THEN 'morrow.horizon.reopened'
        ELSE 'morrow.horizon.overridden'
    END;
    PERFORM add_deliveries(gen_random_uuid(), NEW.task_id, event_type, NEW.at, jsonb_build_object(
        'version', NEW.version,
        'valid_until', say_moment(NEW.valid_until),
        'actor', NEW.actor,
        'reason', NEW.reason,
        'cutoff', CASE WHEN NEW.action = 'release' THEN figures->'cutoff' END,
        'replaced_version', CASE WHEN NEW.action = 'rollback' THEN figures->'replaced' END,
        'error', CASE WHEN NEW.action IN ('close', 'reopen') THEN jsonb_build_object(
            'window', figures->'window', 'age', figures->'age', 'name', figures->'error_name',
            'value', figures->'value', 'limit', figures->'threshold', 'num_rows', figures->'num_rows'
        ) END
    ), 'infinity');
    RETURN NULL;
END $$
"""

_REPORT_CYCLE = """
CREATE FUNCTION report_cycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM add_deliveries(gen_random_uuid(), NEW.task_id, 'morrow.cycle.' || NEW.state,
            coalesce(NEW.ended_at, now()), jsonb_build_object(
                'cycle', NEW.id,
                'cutoff', say_moment(NEW.cutoff),
                'attempt', NEW.attempt,
                'step', NEW.step,
                'reason', NEW.reason,
                'failure_code', NEW.failure_code,
                'run_id', NEW.run_id
            ), 'infinity');
    END IF;
    RETURN NULL;
END $$
"""

# Hooks that were made later hear nothing of what had happened by then.
_REPORT_EXPIRY = """
CREATE FUNCTION report_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    bound record;
BEGIN
    SELECT task_id, version, valid_until INTO bound FROM releases WHERE id = NEW.release_id;
    PERFORM add_deliveries(gen_random_uuid(), bound.task_id, NEW.type, NEW.at, jsonb_build_object(
        'version', bound.version,
        'valid_until', say_moment(bound.valid_until)
    ), NEW.at);
    RETURN NULL;
END $$
"""
