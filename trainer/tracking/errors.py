"""What goes wrong between the trainer and MLflow; `translation` makes these of what mlflow raises."""

from contracts.errors import CycleError, Unavailable
from contracts.failure import REGISTRY_UNREACHABLE


class Missing(CycleError):
    """MLflow knows no such thing."""


class RegistryUnreachable(Unavailable):
    """MLflow does not answer, or fails while it does."""

    def __init__(self, reason: str = REGISTRY_UNREACHABLE.reason) -> None:
        super().__init__(reason)
