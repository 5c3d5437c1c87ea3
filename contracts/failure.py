"""Why a cycle ended without a release: a code for programs and a sentence for people.

Retries, statuses and tests go by the code, so a sentence may be reworded. `cycles` keeps both.
"""

from dataclasses import dataclass
from enum import StrEnum


class FailureCode(StrEnum):
    """Stored values, which never change. Codes that begin with `store_` are outages of PostgreSQL.

    A code that a newer release has stored is read as unforeseen.
    """

    # Something outside the cycle ended it.
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    LEASE_EXPIRED = "lease_expired"
    LEASE_LOST = "lease_lost"
    OVERTAKEN = "overtaken"
    REGISTRY_UNREACHABLE = "registry_unreachable"
    STORE_SILENT = "store_silent"
    STORE_TIMEOUT = "store_timeout"
    STORE_BUSY = "store_busy"
    STORE_NO_CONNECTIONS = "store_no_connections"
    STORE_READ_ONLY = "store_read_only"
    STORE_ROLLED_BACK = "store_rolled_back"
    STORE_NOT_MIGRATED = "store_not_migrated"
    STORE_DISK_FULL = "store_disk_full"
    STORE_OUT_OF_MEMORY = "store_out_of_memory"
    STORE_LIMIT = "store_limit"
    STORE_MACHINE = "store_machine"

    # The training process could not go on.
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_OUT_OF_MEMORY = "device_out_of_memory"
    KILLED = "killed"
    CRASHED = "crashed"
    TIME_LIMIT = "time_limit"
    FILE_ERROR = "file_error"

    # The rows, the model or the registry allow no release.
    RULE_BROKEN = "rule_broken"
    ARTEFACT_REFUSED = "artefact_refused"
    CYCLE_ERROR = "cycle_error"
    CONFLICT = "conflict"

    # An error without a code yet: a bug, until it gets one.
    UNFORESEEN = "unforeseen"

    @classmethod
    def _missing_(cls, _value: object) -> "FailureCode":
        return cls.UNFORESEEN


STORE_OUTAGES = frozenset(code for code in FailureCode if code.startswith("store_"))


@dataclass(frozen=True)
class Failure:
    """A code and its sentence."""

    code: FailureCode
    reason: str


STOPPED = Failure(FailureCode.STOPPED, "The trainer was stopped.")
PREEMPTED = Failure(FailureCode.PREEMPTED, "Something more urgent came up.")
DELETED = Failure(FailureCode.PREEMPTED, "The task is deleted.")
LEASE_EXPIRED = Failure(FailureCode.LEASE_EXPIRED, "The trainer went away and its lease ran out.")
OVERTAKEN = Failure(FailureCode.OVERTAKEN, "a newer cutoff is due")
REGISTRY_UNREACHABLE = Failure(FailureCode.REGISTRY_UNREACHABLE, "The registry does not answer.")
OUT_OF_MEMORY = Failure(FailureCode.OUT_OF_MEMORY, "The training process ran out of memory.")
DEVICE_OUT_OF_MEMORY = Failure(FailureCode.DEVICE_OUT_OF_MEMORY, "The device ran out of memory.")
# The kernel kills without a message if memory runs out.
KILLED = Failure(
    FailureCode.KILLED,
    "The training process was killed by SIGKILL, as happens if a machine or a container runs out of memory.",
)
