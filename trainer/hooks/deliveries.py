"""Sends what waits in the outbox, next to the scheduler's tick.

No transaction is open during a request. Each hook has one request under way at a time in a process, so a receiver that
is slow delays its own events and those of no other hook. Trainers share the work: a claim keeps the others away.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache

import httpx
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.hooks.events import TEST_TYPE, name_source
from store.hooks.outbox import Delivery, claim_due, note_delivered, note_failed
from store.outages import name_outage
from store.tasks.installation import find_installation
from trainer.hooks.sending import LONGEST_SECONDS, Outcome, Sender
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

# Longer than a request can take, so that nobody else sends an event while its answer is awaited.
LEASE = timedelta(seconds=6 * LONGEST_SECONDS)
# Each pause is this many times as long as the one before, up to the longest one.
GROWTH = 3
LONGEST_PAUSE = timedelta(hours=6)
# An event that is older is given up at the next attempt that fails. Otherwise events of a task, each of which waits for
# the one before, would pile up while a receiver is away for days.
LONGEST_WAIT = timedelta(days=1)
# While requests are under way, what is due meanwhile is looked for this often.
_LOOK_SECONDS = 0.2


class HookDeliveries:
    """Sends the events of all hooks. The certificates that receivers are verified by are read once."""

    def __init__(self, engine: Engine, settings: TrainerSettings, stopping: threading.Event) -> None:
        self._engine = engine
        self._settings = settings
        self._stopping = stopping
        self._trust = cache(httpx.create_ssl_context)

    def tick(self, now: datetime) -> None:
        """Send what is due, and go on while more is. After an outage a later tick goes on."""
        began = time.monotonic()

        def clock() -> datetime:
            return now + timedelta(seconds=time.monotonic() - began)

        try:
            if claimed := self._claim(now, []):
                asyncio.run(self._send(claimed, clock))
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise

    async def _send(self, claimed: Sequence[Delivery], clock: Callable[[], datetime]) -> None:
        """Send these events, and whatever is due while requests are under way."""
        sender = Sender(self._settings.hooks_allow_private, self._name_source(), self._trust)
        sending: dict[asyncio.Task[Outcome], Delivery] = {}
        try:
            while claimed or sending:
                for delivery in claimed:
                    sending[asyncio.create_task(sender.send(delivery, clock()))] = delivery
                done, _ = await asyncio.wait(sending, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._note(sending.pop(task), _outcome_of(task), clock())
                if self._stopping.is_set():
                    return
                claimed = self._claim(clock(), [delivery.hook_id for delivery in sending.values()])
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    def _claim(self, now: datetime, busy: Sequence[int]) -> Sequence[Delivery]:
        with self._engine.begin() as connection:
            return claim_due(connection, now, LEASE, busy)

    def _name_source(self) -> str:
        with self._engine.begin() as connection:
            return name_source(find_installation(connection))

    def _note(self, delivery: Delivery, outcome: Outcome, now: datetime) -> None:
        facts = {
            "hook": delivery.hook,
            "event_id": str(delivery.event_id),
            "type": delivery.event_type,
            "attempt": delivery.attempt,
            "answer": outcome.answer,
        }
        due_at = self._find_next(delivery, outcome, now)
        with self._engine.begin() as connection:
            if outcome.is_taken:
                note_delivered(connection, delivery, outcome.answer, now)
            else:
                note_failed(connection, delivery, outcome.answer, now, due_at=due_at)
        if outcome.is_taken:
            log.info("hook.delivered", **facts)
        elif due_at is not None:
            log.info("hook.failed", **facts, due_at=due_at.isoformat())
        elif delivery.event_type != TEST_TYPE:
            log.warning(
                "hook.given_up", **facts, remedy=f"repair the receiver, then morrow hooks retry {delivery.hook}"
            )

    def _find_next(self, delivery: Delivery, outcome: Outcome, now: datetime) -> datetime | None:
        """When to try again after this attempt failed; None to give the event up. A test is tried once."""
        if delivery.event_type == TEST_TYPE or delivery.attempt >= self._settings.hooks_max_attempts:
            return None
        if now - delivery.added_at > LONGEST_WAIT:
            return None
        return now + find_pause(delivery.attempt, self._settings.hooks_retry_seconds, outcome.retry_after)


def find_pause(attempt: int, first_seconds: float, asked_seconds: float | None) -> timedelta:
    """The pause after an attempt that failed, and at least what the receiver asks for, within a limit."""
    longest = LONGEST_PAUSE.total_seconds()
    grown = first_seconds * GROWTH ** min(attempt - 1, 100)
    return timedelta(seconds=min(longest, max(grown, asked_seconds or 0.0)))


def _outcome_of(task: "asyncio.Task[Outcome]") -> Outcome:
    """The outcome of a request. A mistake of ours counts as a failed attempt: it must hold up no other hook."""
    if (error := task.exception()) is None:
        return task.result()
    log.error("hook.fault", exc_info=error)
    return Outcome(False, "Morrow made a mistake, which the log of the trainer shows")
