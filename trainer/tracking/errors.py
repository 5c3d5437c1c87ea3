"""What goes wrong between the trainer and MLflow; `translation` makes these of what mlflow raises."""

from contracts.errors import CycleError, Unavailable
from contracts.failure import REGISTRY_UNREACHABLE
from store.tasks.installation import REMEDY


class Missing(CycleError):
    """MLflow knows no such thing."""


class TakenName(CycleError):
    """Another installation has a task of this name in the same MLflow."""

    def __init__(self, what: str, name: str, mark: str) -> None:
        super().__init__(f"MLflow's {what} {name!r} is of another installation ({mark}): {REMEDY}.")


class RegistryUnreachable(Unavailable):
    """MLflow does not answer, or fails while it does."""

    def __init__(self, reason: str = REGISTRY_UNREACHABLE.reason) -> None:
        super().__init__(reason)
