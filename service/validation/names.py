"""Names in what a client sends: which are missing, unknown or given twice."""

from collections.abc import Collection, Sequence
from itertools import islice

from contracts.errors import Fault, InvalidInput, NotFound
from contracts.spec_values import find_near, find_same, list_names
from service.validation.lossless_json import JsonObject
from service.validation.options import NAMES

MAX_FAULTS_PER_ROW = 50
MAX_SHOWN = 100
NUM_SUGGESTED = 3


def explain_names(
    given: JsonObject, required: Sequence[str], optional: Collection[str], of: str, prefix: str = ""
) -> list[Fault]:
    """Faults of names that are unknown, given twice or missing; at most 25 of each of the first two kinds.

    An unknown name gets the known one that resembles it as a suggestion, or else a list of all.
    """
    unknown = (name for name in given if name not in required and name not in optional)
    known = (*required, *optional)
    return [
        # Only the first are compared with similar names, so that a body of many unknown ones takes no longer.
        *(
            Fault(
                prefix + printable(name),
                f"is not one of {of}{_suggest(name, known, is_compared=place < NUM_SUGGESTED)}",
            )
            for place, name in enumerate(islice(unknown, MAX_FAULTS_PER_ROW // 2))
        ),
        *(
            Fault(prefix + printable(name), "is given more than once")
            for name in given.repeated[: MAX_FAULTS_PER_ROW // 2]
        ),
        *(Fault(prefix + name, "is required") for name in required if name not in given),
    ]


def explain_body_names(
    given: JsonObject, required: Sequence[str], of: str, optional: Collection[str] = ()
) -> list[Fault]:
    """The same for the body of a question, which may hold a parameter that belongs in the query string."""
    return [
        Fault(fault.field, f"is a parameter of the query string (POST /predict?{fault.field}=…), not of the body")
        if fault.field in NAMES
        else fault
        for fault in explain_names(given, required, optional, of)
    ]


def _suggest(name: str, known: tuple[str, ...], *, is_compared: bool) -> str:
    if name in NAMES:
        return ""  # a parameter of the query string, which is told its place
    if not is_compared:
        same = find_same(printable(name), known)
        return "" if same is None else f": write {same}"
    near = find_near(printable(name), known)
    return f": {list_names(known)}" if near is None else f": write {near}"


def only_task(names: tuple[str, ...]) -> str:
    """The only task. Raises NotFound if there is none, InvalidInput if there are more."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("There is no task yet: define one with PUT /tasks/{task}.")
    reason = f"is required in the query string, as ?task={names[0]}, because there is more than one task"
    raise InvalidInput([Fault("task", f"{reason}: {', '.join(names[:20])}")])


def printable(text: str) -> str:
    """A name or id from a client, cut and escaped for answers and logs."""
    return text[:MAX_SHOWN].encode("utf-8", "backslashreplace").decode()
