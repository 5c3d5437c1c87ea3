"""Reading the rows of fits from a standby of PostgreSQL, so that the primary server need not.

A standby shows the past: it replays the log of the primary some time later. What a fit may use is all that the primary
held when the read began. So the position in the primary's log is taken first, and the standby is read once it has
replayed that far. If it does not in time, is no standby of this primary, or fails, the primary is read instead.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import psycopg
import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.engine import make_engine
from store.errors import SealedRowsUnreadable
from store.outages import name_outage
from store.refusals import explain_refusal
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

T = TypeVar("T")

SETTING = "MORROW_READ_DATABASE_URL"
_PAUSE_SECONDS = 0.05
_NAME_A_STANDBY = f"name a standby of the primary in {SETTING}"
_NUM_TRIES = 3


# Rows may be visible whose commit is not written to the log yet (`synchronous_commit = off`), so the position is the
# end of the filled log. The first eight digits of a log file's name are its timeline.
_PRIMARY = text("""
    SELECT CAST(position AS text), substr(pg_walfile_name(position), 1, 8), system_identifier
    FROM pg_current_wal_insert_lsn() AS position, pg_control_system()
""")
_STANDBY = text("""
    SELECT pg_is_in_recovery(), system_identifier, min_recovery_end_timeline, pg_postmaster_start_time(),
           pg_wal_lsn_diff(CAST(:position AS pg_lsn), pg_last_wal_replay_lsn())
    FROM pg_control_system(), pg_control_recovery()
""")


@dataclass(frozen=True)
class Position:
    """A place in the log of a primary. Two servers promoted from one past share an identity, and no later timeline."""

    lsn: str
    timeline: int
    identity: int

    @staticmethod
    def of(connection: Connection) -> "Position":
        """What this primary holds now."""
        lsn, timeline, identity = connection.execute(_PRIMARY).one()
        return Position(lsn, int(timeline, 16), identity)


@dataclass(frozen=True)
class Lag:
    """What a server lacks of a position; `trouble` if it will never reach it, which `remedy` ends."""

    num_bytes: int
    timeline: int
    expected_timeline: int
    server: object
    trouble: str | None = None

    @staticmethod
    def of(connection: Connection, position: Position) -> "Lag":
        """What this standby lacks now. Its snapshot is no older than the next transaction's."""
        is_standby, identity, timeline, started_at, num_bytes = connection.execute(
            _STANDBY, {"position": position.lsn}
        ).one()
        trouble = None
        if identity != position.identity:
            trouble = f"the server of {SETTING} is no copy of the primary"
        elif not is_standby:
            trouble = f"the server of {SETTING} is no standby"
        return Lag(int(num_bytes or 0), timeline, position.timeline, started_at, trouble)

    @property
    def is_none(self) -> bool:
        """Whether the server holds all that the position stands for."""
        return self.trouble is None and self.num_bytes <= 0 and self.timeline == self.expected_timeline

    def __str__(self) -> str:
        if self.trouble is not None:
            return self.trouble
        if self.timeline != self.expected_timeline:
            return f"the replica follows timeline {self.timeline}, and the primary is on {self.expected_timeline}"
        return f"the replica lacks {self.num_bytes:,} bytes of the primary's log"


class ReplicaUnusable(Exception):
    """Why the primary must be read, and the remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Replica:
    """The standby of a URL, and for how many seconds a read waits until it has replayed enough."""

    url: str
    wait_seconds: float

    @contextmanager
    def snapshot(self, position: Position) -> Iterator[Connection]:
        """A snapshot that holds everything up to a position. Raises ReplicaUnusable, or the error of the connection.

        A position is compared, then the transaction begins whose snapshot is read. The second comparison shows that no
        pooler has led it to another server.
        """
        engine = make_engine(self.url, pool_size=1, writes=False)
        try:
            with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
                began = time.monotonic()
                server = self._await(connection, position)
                with connection.begin():
                    if (lag := Lag.of(connection, position)).server != server:
                        raise ReplicaUnusable(f"{SETTING} leads to several servers", "name a single standby in it")
                    if not lag.is_none:  # it was promoted, or follows another server by now
                        raise ReplicaUnusable(str(lag), _NAME_A_STANDBY)
                    log.info("read.replica", waited_seconds=round(time.monotonic() - began, 1))
                    yield connection
        finally:
            engine.dispose()

    def _await(self, connection: Connection, position: Position) -> object:
        """The server that has replayed the position. Raises ReplicaUnusable if it does not in time, or never will."""
        deadline = time.monotonic() + self.wait_seconds
        while True:
            with connection.begin():
                lag = Lag.of(connection, position)
            if lag.is_none:
                return lag.server
            if lag.trouble is not None:
                raise ReplicaUnusable(str(lag), _NAME_A_STANDBY)
            if time.monotonic() > deadline:
                raise ReplicaUnusable(
                    f"{lag} after {self.wait_seconds:g} s",
                    "find out what delays the replica, or raise MORROW_READ_WAIT_SECONDS",
                )
            time.sleep(_PAUSE_SECONDS)


def find_replica(settings: TrainerSettings) -> Replica | None:
    """The replica that the settings name."""
    url = settings.read_database_url
    return None if url is None else Replica(url, settings.read_wait_seconds)


def read_rows(primary: Engine, replica: Replica | None, work: Callable[[Connection], T]) -> T:
    """The result of `work` in one snapshot of all that the primary holds now, read from the replica if there is one.

    A file of sealed events may be rewritten while it is read, which another snapshot knows.
    """
    for _ in range(_NUM_TRIES - 1):
        with suppress(SealedRowsUnreadable):
            return _read_once(primary, replica, work)
        time.sleep(_PAUSE_SECONDS)
    return _read_once(primary, replica, work)


def _read_once(primary: Engine, replica: Replica | None, work: Callable[[Connection], T]) -> T:
    if replica is not None:
        try:
            with replica.snapshot(_locate(primary)) as connection:
                return work(connection)
        except ReplicaUnusable as error:
            log.warning("read.primary", reason=str(error), remedy=error.remedy)
        except (SQLAlchemyError, psycopg.Error) as error:
            reason = _explain(error, replica)
            if reason is None:
                raise
            log.warning("read.primary", reason=reason, remedy=f"correct {SETTING}: morrow doctor")
    with primary.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        return work(connection)


def _locate(primary: Engine) -> Position:
    """What the primary holds now. Raises ReplicaUnusable if it does not say, as some managed servers do not."""
    try:
        with primary.connect() as connection:
            return Position.of(connection)
    except DBAPIError as error:
        if name_outage(error) is not None:
            raise
        reason = f"the primary does not say how far its log is ({str(error.orig).splitlines()[0]})"
        raise ReplicaUnusable(reason, f"unset {SETTING}, or let the role call pg_control_system()") from error


def _explain(error: Exception, replica: Replica) -> str | None:
    """Why a replica could not be read; None if the statement is at fault, as it would be at the primary."""
    has_answered = getattr(getattr(error, "orig", error), "sqlstate", None) is not None
    if has_answered and (outage := name_outage(error)) is not None:
        return f"the replica broke the read off: {outage.reason}"
    refusal = explain_refusal(error, replica.url) if isinstance(error, DBAPIError) else None
    return None if refusal is None else refusal.words
