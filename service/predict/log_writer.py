"""The log of answers: the event loop adds rows to a buffer, and a thread stores them, many in one transaction.

No answer waits for the log, and none fails because of it. If the database does not answer, rows wait in the buffer; if
the buffer is full, further rows are dropped and counted.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.metrics import Metrics
from service.predict.row_buffer import RowBuffer, find_left
from store.outages import name_outage
from store.predictions.rows import split_rows
from store.predictions.writes import Stored, store_rows

# Bytes of one of the two buffers of a process: some fifteen thousand rows.
BUFFER_BYTES = 8 * 2**20
# How long rows gather before they are stored together: a transaction costs the service as much as some hundred rows do.
# The pause after an outage.
GATHER_SECONDS = 0.5
RETRY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class LogWriter:
    """Stores the rows of one process. `add` is called from any thread, and `start` and `close` once each."""

    def __init__(self, engine: Engine, folder: Path, metrics: Metrics, *, size: int = BUFFER_BYTES) -> None:
        self._engine = engine
        self._folder = folder
        self._metrics = metrics
        self._size = size
        self._lock = threading.Lock()
        self._filled, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._outage: str | None = None

    def start(self) -> None:
        """Begin to store rows, first those that an earlier process of this home folder left behind."""
        self._active, self._spare = RowBuffer(self._folder, self._size), RowBuffer(self._folder, self._size)
        self._thread = threading.Thread(target=self._run, name="prediction-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Store what is left; in an outage the next process of this home folder does."""
        if self._thread is None:
            return
        self._stopping.set()
        self._filled.set()
        self._thread.join()
        num_left = self._active.num_rows + self._spare.num_rows
        for buffer in (self._active, self._spare):
            buffer.close()
        if num_left:
            log.warning("prediction_log.left", num_rows=num_left, remedy="the next API of this MORROW_HOME stores them")

    def add(self, row: bytes, task_id: int) -> None:
        """Let a row be stored soon; it is dropped if too many wait."""
        with self._lock:
            is_added = self._active.add(row, task_id)
        if not is_added:
            self._metrics.predictions_dropped.labels("queue_full").inc()
        elif not self._filled.is_set():
            self._filled.set()

    def _run(self) -> None:
        self._repeat(self._store_left)
        while not self._stopping.is_set():
            self._filled.wait()
            self._stopping.wait(GATHER_SECONDS)
            self._filled.clear()
            self._repeat(self._store_gathered)
        self._repeat(self._store_gathered)

    def _repeat(self, work: Callable[[], None]) -> None:
        """Do this, again after an outage, until this process ends. A bug must not end the log either."""
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 the rows wait
                self._note_outage(error)
            else:
                if self._outage is not None:
                    log.info("prediction_log.resumed")
                self._outage = None
                return
            if self._stopping.wait(RETRY_SECONDS):
                return

    def _store_gathered(self) -> None:
        """Store the rows of the active buffer, after those that an outage has kept in the other."""
        self._store_spare()
        with self._lock:
            self._active, self._spare = self._spare, self._active
        self._store_spare()

    def _store_spare(self) -> None:
        full = self._spare
        if full.num_rows:
            touched = full.touched
            task_ids = {task_id for task_id, _ in touched}
            self._count(store_rows(self._engine, full.rows(), full.num_rows, task_ids, touched))
            full.clear()

    def _store_left(self) -> None:
        try:
            for left in find_left(self._folder):
                try:
                    self._store_file(left.rows)
                    left.remove()
                finally:
                    left.close()
        except OSError as error:
            log.warning("prediction_log.unreadable", reason=error.strerror)

    def _store_file(self, rows: bytes) -> None:
        try:
            found = [*split_rows(rows)]
        except ValueError as error:  # the machine itself was lost while it was written
            log.warning("prediction_log.damaged", reason=str(error))
            self._metrics.predictions_dropped.labels("damaged").inc()
            return
        if found:
            self._count(store_rows(self._engine, rows, len(found), {row.task_id for row in found}))
            log.info("prediction_log.recovered", num_rows=len(found))

    def _count(self, stored: Stored) -> None:
        self._metrics.predictions_logged.inc(stored.num_stored)
        self._metrics.predictions_dropped.labels("refused").inc(stored.num_refused)
        self._metrics.predictions_dropped.labels("task_deleted").inc(stored.num_without_task)

    def _note_outage(self, error: Exception) -> None:
        """Log an outage once; an error that is none comes with its traceback."""
        outage = name_outage(error)
        is_outage = outage is not None or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
        reason = outage.reason if outage is not None else type(error).__name__
        if reason != self._outage:
            if is_outage or isinstance(error, SQLAlchemyError):
                log.warning("prediction_log.waits", reason=reason)
            else:
                log.error("prediction_log.failed", exc_info=error)
        self._outage = reason
