"""How a cycle, a backtest or a replay reports its progress, to a log or to a terminal."""

from typing import Protocol


class Report(Protocol):
    """Receives a stable event name and facts, as a logger does."""

    def __call__(self, event: str, /, **facts: object) -> object: ...


# The event of a cycle whose run in MLflow could not be ended.
RUN_LEFT_OPEN = "run.left_open"
