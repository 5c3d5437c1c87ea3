"""The log of answered predictions, and the options of imports.

**Predictions** are partitioned by their ids, which sort by time. Trainers make a partition for each day; rows of a day
without one go to the partition `predictions_default`.

The previous release logs nothing. A task that it deletes loses its logged predictions by a trigger.

**Options** of an import, such as the column of its moments and their time zone, stand in its row. So the next step of
a task can spell the whole command. Imports of the previous release have none.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON, JSONB, TIMESTAMP

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _add_predictions()
    _keep_options_of_imports()


def _keep_options_of_imports() -> None:
    op.add_column("imports", sa.Column("options", JSONB))


def _add_predictions() -> None:
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
