"""The failure that an error stands for: a code, and a sentence that an operator can act on."""

import re

import torch

from contracts.errors import ArtefactRefused, Conflict, MorrowError
from contracts.failure import DEVICE_OUT_OF_MEMORY, OUT_OF_MEMORY, REGISTRY_UNREACHABLE, Failure, FailureCode
from store.errors import StoreOutage
from store.outages import name_outage
from trainer.tracking.errors import RegistryUnreachable

# torch raises no MemoryError if the machine has no memory left.
_NO_MEMORY = re.compile(r"DefaultCPUAllocator|can't allocate memory|bad allocation|std::bad_alloc")


def name_failure(error: Exception) -> Failure:
    """The failure of an error. An unforeseen one is named by its type only: its message may hold rows, paths or SQL."""
    if isinstance(error, MorrowError):
        return _name_our_own(error)
    if outage := name_outage(error):
        return outage
    if isinstance(error, torch.OutOfMemoryError):
        return DEVICE_OUT_OF_MEMORY
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return OUT_OF_MEMORY
    # Errors of connections are OSErrors too; those of other libraries have no message of the system.
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ConnectionError | TimeoutError):
        reason = f"A file of the trainer cannot be read or written: {error.strerror}."
        return Failure(FailureCode.FILE_ERROR, reason)
    return Failure(FailureCode.UNFORESEEN, f"An unforeseen {type(error).__name__}; see the trainer's log.")


def _name_our_own(error: MorrowError) -> Failure:
    match error:
        case StoreOutage():
            return error.failure
        case RegistryUnreachable():
            return Failure(REGISTRY_UNREACHABLE.code, str(error))
        case ArtefactRefused():
            return Failure(FailureCode.ARTEFACT_REFUSED, str(error))
        case Conflict():
            return Failure(FailureCode.CONFLICT, str(error))
        case _:
            return Failure(FailureCode.CYCLE_ERROR, str(error))
