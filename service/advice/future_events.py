"""Warnings of events that are dated in the future."""

from datetime import datetime, timedelta

from contracts.clock import format_moment, from_micros
from contracts.shown import say_count
from service.advice.repairs import MAX_NAMED, name_some, say_repair
from store.events.far_rows import FutureEvents

# Clocks of producers may be ahead by as much.
CLOCKS_APART = timedelta(minutes=15)
# A moment without an offset, read in another time zone, is off by at most this.
_ZONES_APART = timedelta(hours=26)


def warn_of_future(task_name: str, newest: int, found: FutureEvents | None) -> str:
    """A warning of the newest event, which is dated more than a window ahead; `found` are all such events, if known."""
    moment = format_moment(newest)
    told = f"the newest event is dated {moment}, in the future: no fit reads it until then"
    if found is None:
        return (
            f"{told}; if that is a mistake, find its id with morrow events list {task_name} --from {moment}, and "
            f"correct it with morrow events correct {task_name} FILE, or erase it with morrow events erase {task_name} "
            'ID --reason "wrong date"'
        )
    listed = f"--from {format_moment(found.since)}"
    return f"{told} ({_count(found)}); if that is a mistake, {say_repair(task_name, found.ids, listed)}"


def warn_of_import(task_name: str, import_id: int, found: FutureEvents, now: datetime) -> str:
    """A warning of the events of the future that an import has brought.

    Its options are doubted only if they explain the dates: if day and month in the other order, or another time zone,
    would have dated the newest of them before now, or if many of its dates are of the future.
    """
    told = f"the newest event is dated {format_moment(found.newest)}, in the future"
    undo = f"undo it with morrow events retract {task_name} --import {import_id}, and import the file with"
    if _may_be_swapped(found.newest, now) or from_micros(found.newest) - now <= _ZONES_APART:
        return (
            f"{told} ({_count(found)}): if this import read day and month in the wrong order, or in another time zone, "
            f"{undo} --dayfirst, --monthfirst, --at-format or --timezone"
        )
    repair = say_repair(task_name, found.ids, f"--from {format_moment(found.since)}")
    if found.count <= MAX_NAMED:
        return f"{told} ({_count(found)}): if that is a mistake, {repair}"
    return f"{told} ({_count(found)}): if this import read its dates in a wrong form, {undo} --at-format; or {repair}"


def _count(found: FutureEvents) -> str:
    count = say_count(found.count, "event") if found.is_counted else f"at least {found.count:,} events"
    return f"{count} from {format_moment(found.since)} on: {name_some(found.ids, found.count)}"


def _may_be_swapped(newest: int, now: datetime) -> bool:
    """Whether this moment with day and month in the other order is not of the future."""
    at = from_micros(newest)
    return at.day <= 12 and at.day != at.month and at.replace(month=at.day, day=at.month) <= now + CLOCKS_APART
