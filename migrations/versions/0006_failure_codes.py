"""A code next to the sentence of a cycle that ended without a release.

The previous release writes only sentences, and may run at the same time for a while. So a trigger gives each ended row
without a code the code of its sentence; existing rows get theirs by one update. A revision of a later release drops
trigger and function: then no process writes a row without a code.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("cycles", sa.Column("failure_code", sa.Text))
    op.execute(_FUNCTION)
    op.execute(_TRIGGER)
    op.execute("UPDATE cycles SET reason = reason WHERE state IN ('held', 'skipped', 'failed')")


_FUNCTION = """
CREATE FUNCTION fill_failure_code() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.failure_code := CASE
        WHEN NEW.reason IN ('a newer cutoff is due', 'a newer cutoff is released') THEN 'overtaken'
        WHEN NEW.state IN ('held', 'skipped') THEN 'rule_broken'
        ELSE CASE NEW.reason
            WHEN 'The trainer was stopped.' THEN 'stopped'
            WHEN 'The trainer went away and its lease ran out.' THEN 'lease_expired'
            WHEN 'The registry does not answer.' THEN 'registry_unreachable'
            WHEN 'All connections of this process to the database are taken.' THEN 'store_busy'
            WHEN 'The database does not answer.' THEN 'store_silent'
            WHEN 'The database did not answer in time.' THEN 'store_timeout'
            WHEN 'The database takes no more connections.' THEN 'store_no_connections'
            WHEN 'The database takes no writes.' THEN 'store_read_only'
            WHEN 'The database has undone this for the sake of something else.' THEN 'store_rolled_back'
            WHEN 'The database has not got the tables of this version.' THEN 'store_not_migrated'
            WHEN 'The database has no room left.' THEN 'store_disk_full'
            WHEN 'The database has no memory left.' THEN 'store_out_of_memory'
            WHEN 'The database has reached one of its limits.' THEN 'store_limit'
            WHEN 'The database''s machine has failed it.' THEN 'store_machine'
            WHEN 'The training process ran out of memory.' THEN 'out_of_memory'
            WHEN 'The device ran out of memory.' THEN 'device_out_of_memory'
            WHEN 'This cutoff has been released already.' THEN 'conflict'
            ELSE CASE
                WHEN NEW.reason LIKE 'The time limit of % s was reached.' THEN 'time_limit'
                WHEN NEW.reason LIKE 'Its lease was lost, and it did not leave within % s.' THEN 'lease_lost'
                WHEN NEW.reason LIKE 'The training process was killed by SIGKILL, %' THEN 'killed'
                WHEN NEW.reason LIKE 'The training process %' THEN 'crashed'
                WHEN NEW.reason LIKE 'A file of the trainer cannot be read or written: %' THEN 'file_error'
                WHEN NEW.reason LIKE 'An unforeseen %' THEN 'unforeseen'
                ELSE 'cycle_error'
            END
        END
    END;
    RETURN NEW;
END $$
"""

_TRIGGER = """
CREATE TRIGGER cycles_fill_failure_code BEFORE INSERT OR UPDATE ON cycles FOR EACH ROW
WHEN (NEW.failure_code IS NULL AND NEW.reason IS NOT NULL AND NEW.state IN ('held', 'skipped', 'failed'))
EXECUTE FUNCTION fill_failure_code()
"""
