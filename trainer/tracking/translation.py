"""MLflow's errors translated: no answer and server faults become RegistryUnreachable, a refusal a CycleError."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException, RestException
from requests import RequestException

from contracts.errors import CycleError
from contracts.registry_answers import explain_status
from trainer.tracking.errors import Missing, RegistryUnreachable

# How MLflow's client words an answer that is not MLflow's JSON.
_REFUSAL = re.compile(r"failed with error code (401|403|407)\b")
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"

DOES_NOT_EXIST = "RESOURCE_DOES_NOT_EXIST"

_MISSING = (DOES_NOT_EXIST, "INVALID_PARAMETER_VALUE")
_SERVER_FAULTS = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "RESOURCE_EXHAUSTED", "REQUEST_LIMIT_EXCEEDED")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise RegistryUnreachable, Missing or another CycleError in place of what MLflow's client raises."""
    try:
        yield
    except RestException as error:
        if error.error_code in _MISSING:
            raise Missing(f"MLflow refuses: {error.message}") from error
        if error.error_code in _SERVER_FAULTS:
            raise RegistryUnreachable from error
        raise CycleError(f"MLflow refuses: {error.message}") from error
    except (MlflowException, RequestException) as error:
        if found := _REFUSAL.search(str(error)):
            raise RegistryUnreachable(explain_status(int(found[1]), str(error))) from error
        raise RegistryUnreachable from error
