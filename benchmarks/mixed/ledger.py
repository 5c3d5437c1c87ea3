"""What producers have sent, and what was acknowledged of it, compared with what the store holds in the end.

A client sends the contents of one event one after the other, each only once the one before is acknowledged. So the
revisions in the store must be those contents, in order: all that were acknowledged, and at most the one that was not.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import Engine, select

from benchmarks.mixed.stream import WINDOW, Row
from contracts.clock import from_micros
from store.database import events


@dataclass
class Account:
    """One event: every content that was sent for it, and how many were acknowledged."""

    sent: list[Row] = field(default_factory=list)
    num_acknowledged: int = 0


@dataclass(frozen=True)
class Audit:
    """Counts, and the ids of events that are wrong."""

    num_events: int
    num_corrections: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.num_events} events and {self.num_corrections} corrections acknowledged: {len(self.lost)} lost, "
            f"{len(self.duplicated)} duplicated, {len(self.wrong)} wrong"
        )


class Ledger:
    """The accounts of all producers of one task. An event belongs to one producer."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._num_in_window: Counter[int] = Counter()
        self._lock = threading.Lock()

    def send(self, row: Row) -> None:
        """Record a content before it is sent for the first time."""
        with self._lock:
            self._accounts.setdefault(row.event_id, Account()).sent.append(row)

    def acknowledge(self, row: Row) -> None:
        """Record that everything sent for the row's event has been acknowledged."""
        with self._lock:
            account = self._accounts[row.event_id]
            account.num_acknowledged = len(account.sent)
            if account.num_acknowledged == 1:
                self._num_in_window[row.at // WINDOW] += 1

    def count_in_window(self, start: int) -> int:
        """Acknowledged events of the window that starts there (microseconds)."""
        with self._lock:
            return self._num_in_window[start // WINDOW]

    def audit(self, engine: Engine, task_id: int) -> Audit:
        """Compare every account with the store. Nobody sends meanwhile."""
        lost, duplicated, wrong = list[str](), list[str](), list[str]()
        stored = _read_revisions(engine, task_id)
        for event_id, account in self._accounts.items():
            found = stored.pop(event_id, [])
            if len(found) < account.num_acknowledged:
                lost.append(event_id)
            elif len(found) > len(account.sent):
                duplicated.append(event_id)
            expected = [_content(row) for row in account.sent[: len(found)]]
            is_current = [is_last for _, is_last in found]
            if [content for content, _ in found] != expected or is_current != _only_last(len(found)):
                wrong.append(event_id)
        counts = [account.num_acknowledged for account in self._accounts.values()]
        # An event that nobody has sent can only be somebody's event twice.
        return Audit(
            sum(count > 0 for count in counts),
            sum(max(count - 1, 0) for count in counts),
            tuple(lost),
            (*duplicated, *stored),
            tuple(wrong),
        )


Content = tuple[object, ...]


def _content(row: Row) -> Content:
    return from_micros(row.at), [row.x], [row.kind], row.label


def _only_last(count: int) -> list[bool]:
    return [place == count - 1 for place in range(count)]


def _read_revisions(engine: Engine, task_id: int) -> dict[str, list[tuple[Content, bool]]]:
    """Event id -> the content of each revision, and whether it is the current one."""
    columns = (events.c.at, events.c.numbers, events.c.categories, events.c.label)
    found: dict[str, list[tuple[Content, bool]]] = {}
    with engine.connect() as connection:
        rows = connection.execute(
            select(events.c.event_id, events.c.superseded_at, *columns)
            .where(events.c.task_id == task_id)
            .order_by(events.c.event_id, events.c.revision)
        )
        for event_id, superseded_at, *content in rows:
            found.setdefault(event_id, []).append((tuple(content), superseded_at is None))
    return found
