"""Why a cycle failed, in one sentence that whoever reads the status can do something with."""

import re

import torch

from store.outages import name_outage

NO_MEMORY = "The training process ran out of memory."
NO_DEVICE_MEMORY = "The device ran out of memory."
# torch raises no MemoryError where the machine has none left.
_NO_MEMORY = re.compile(r"DefaultCPUAllocator|can't allocate memory|bad allocation|std::bad_alloc")


def name_failure(error: Exception) -> str:
    """Of what nobody has foreseen it names the type: its message may hold rows, paths or SQL."""
    if outage := name_outage(error):
        return outage
    if isinstance(error, torch.OutOfMemoryError):
        return NO_DEVICE_MEMORY
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return NO_MEMORY
    # What a connection meets is an OSError too, and has no words of the system's where it is another library's.
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ConnectionError | TimeoutError):
        return f"A file of the trainer cannot be read or written: {error.strerror}."
    return f"An unforeseen {type(error).__name__}; see the trainer's log."
