"""A finding of `morrow doctor`: a line that says how one thing is, and a remedy."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

Level = Literal["ok", "warn", "fail"]

# Windows and `known_at` depend on clocks. HTTP dates resolve a second, and a slow answer takes about one.
SKEW_TO_WARN = timedelta(seconds=3)
SKEW_TO_FAIL = timedelta(seconds=30)


@dataclass(frozen=True)
class Finding:
    """The state of one thing; `remedy` is None if it is ok."""

    subject: str
    level: Level
    words: str
    remedy: str | None = None


def ok(subject: str, words: str) -> Finding:
    """The thing is as it should be."""
    return Finding(subject, "ok", words)


def warn(subject: str, words: str, remedy: str) -> Finding:
    """The thing works, but not as it should, or not for long."""
    return Finding(subject, "warn", words, remedy)


def fail(subject: str, words: str, remedy: str) -> Finding:
    """The thing does not work."""
    return Finding(subject, "fail", words, remedy)


def judge_skew(subject: str, skew: timedelta) -> Finding:
    """Judge how far another clock is ahead of ours."""
    seconds = skew.total_seconds()
    words = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    remedy = "let NTP set the clocks of both machines: windows and times of labels depend on them"
    if abs(skew) <= SKEW_TO_WARN:
        return ok(subject, words)
    return warn(subject, words, remedy) if abs(skew) <= SKEW_TO_FAIL else fail(subject, words, remedy)
