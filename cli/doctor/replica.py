"""The check of the standby that the rows of fits are read from."""

from collections.abc import Iterator

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cli.doctor.finding import Finding, fail, ok, warn
from store.engine import make_engine
from store.refusals import explain_refusal
from trainer.data.replica import SETTING, Lag, Position
from trainer.settings import TrainerSettings

_SUBJECT = "read replica"
# Of the log that a busy primary writes, a standby is always some behind.
_MUCH = 64 * 2**20


def examine_replica(settings: TrainerSettings) -> Iterator[Finding]:
    """Whether the standby answers, is one of the primary, and how far it is behind; nothing if none is named."""
    if settings.read_database_url is None:
        return
    if settings.database_url is None:
        remedy = f"set MORROW_DATABASE_URL to its primary, or remove {SETTING}"
        yield fail(_SUBJECT, f"{SETTING} is set, and MORROW_DATABASE_URL is not", remedy)
        return
    primary = make_engine(settings.database_url, pool_size=1)
    replica = make_engine(settings.read_database_url, pool_size=1, writes=False)
    try:
        with primary.connect() as connection:
            position = Position.of(connection)
    except SQLAlchemyError:
        return  # another finding says that the database does not answer
    finally:
        primary.dispose()
    try:
        with replica.connect() as connection:
            lag = Lag.of(connection, position)
    except DBAPIError as error:
        refusal = explain_refusal(error, settings.read_database_url)
        words = str(error.orig).strip().splitlines()[0] if refusal is None else refusal.words
        yield fail(_SUBJECT, words, f"correct {SETTING}; until then fits read the primary")
        return
    finally:
        replica.dispose()
    if lag.trouble is not None:
        yield fail(
            _SUBJECT, lag.trouble, f"name a standby of the primary in {SETTING}; until then fits read the primary"
        )
    elif lag.timeline != lag.expected_timeline or lag.num_bytes > _MUCH:
        yield warn(_SUBJECT, str(lag), "find out what delays the replica: fits wait for it, then read the primary")
    else:
        yield ok(_SUBJECT, f"a standby of the database, {max(0, lag.num_bytes):,} bytes behind")
