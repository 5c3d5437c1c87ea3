"""How following a task's alias goes, as statuses, pages and readiness tell it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RegistryState:
    """Of one task; `champion` is the version that the alias named last."""

    state: Literal["ok", "degraded"] = "ok"
    reason: str | None = None
    champion: str | None = None
