"""What `morrow doctor` finds: one line each, and what to do about it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

Level = Literal["ok", "warn", "fail"]

# Windows and `known_at` are told by clocks. A second is what the clock of HTTP resolves, and what a slow answer takes.
SKEW_TO_WARN = timedelta(seconds=3)
SKEW_TO_FAIL = timedelta(seconds=30)


@dataclass(frozen=True)
class Finding:
    """How one thing is; `remedy` only where it is not ok."""

    subject: str
    level: Level
    words: str
    remedy: str | None = None


def ok(subject: str, words: str) -> Finding:
    """All is well."""
    return Finding(subject, "ok", words)


def warn(subject: str, words: str, remedy: str) -> Finding:
    """It works, but not as it should, or not for long."""
    return Finding(subject, "warn", words, remedy)


def fail(subject: str, words: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(subject, "fail", words, remedy)


def judge_skew(subject: str, skew: timedelta) -> Finding:
    """How far another clock is ahead of ours."""
    seconds = skew.total_seconds()
    words = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    remedy = "let both machines set their clocks by NTP: windows and times of labels are told by them"
    if abs(skew) <= SKEW_TO_WARN:
        return ok(subject, words)
    return warn(subject, words, remedy) if abs(skew) <= SKEW_TO_FAIL else fail(subject, words, remedy)
