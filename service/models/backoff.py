"""Backoff for versions that could not be loaded: the reason, and the time of the next retry."""

from dataclasses import dataclass

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
# For outages: the version itself may be fine, and the outage may end soon.
LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class _Refusal:
    """A version that is not retried before `until` (monotonic seconds); `is_broken` unless it may be sound itself."""

    version: str
    reason: str
    until: float
    pause: float
    is_broken: bool


class Backoff:
    """The newest refusal of each task; the pause doubles each time the same version is refused again."""

    def __init__(self) -> None:
        self._of: dict[str, _Refusal] = {}

    def may_try(self, task: str, version: str, now: float) -> bool:
        """Whether a version may be tried now; `now` in monotonic seconds."""
        refusal = self._of.get(task)
        return refusal is None or refusal.version != version or now >= refusal.until

    def add(
        self,
        task: str,
        version: str,
        reason: str,
        now: float,
        *,
        longest: float = LONGEST_PAUSE,
        is_broken: bool = True,
    ) -> None:
        """Record a refusal; `reason` is a sentence, and no pause is longer than `longest` seconds."""
        former = self._of.get(task)
        pause = min(2 * former.pause, longest) if former and former.version == version else FIRST_PAUSE
        self._of[task] = _Refusal(version, reason, now + pause, pause, is_broken)

    def forget(self, task: str) -> None:
        self._of.pop(task, None)

    def reason(self, task: str) -> str:
        """Why the newest refused version of a task was refused; the task must have one."""
        return self._of[task].reason

    def is_broken(self, task: str) -> bool:
        """Whether the newest refused version of a task was refused for itself."""
        return self._of[task].is_broken
