"""Names in what a client sends: which are missing, unknown or given twice."""

from collections.abc import Collection, Sequence
from itertools import islice

from contracts.errors import Fault, InvalidInput, NotFound
from contracts.spec.spec_values import find_near, find_same, list_names
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
    known = (*required, *optional)
    meant = suggest_known(given, known)
    return [
        *(
            Fault(
                prefix + printable(name),
                f"is not one of {of}{_suggest(name, known, near, is_compared=place < NUM_SUGGESTED)}",
            )
            for place, (name, near) in enumerate(meant.items())
        ),
        *(
            Fault(prefix + printable(name), "is given more than once")
            for name in given.repeated[: MAX_FAULTS_PER_ROW // 2]
        ),
        *(Fault(prefix + name, "is required") for name in required if name not in given and name not in meant.values()),
    ]


def suggest_known(given: JsonObject, known: tuple[str, ...]) -> dict[str, str | None]:
    """The first unknown names, each with the known one that was likely meant, or None.

    Only few are compared with similar names, so that a body of many unknown ones takes no longer.
    """
    known_names = frozenset(known)
    unknown = islice((name for name in given if name not in known_names), MAX_FAULTS_PER_ROW // 2)
    found: dict[str, str | None] = {}
    for place, name in enumerate(unknown):
        if name in NAMES:  # a parameter of the query string, which is told its place
            found[name] = None
        elif place < NUM_SUGGESTED:
            found[name] = find_near(printable(name), known)
        else:
            found[name] = find_same(printable(name), known)
    return found


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


def _suggest(name: str, known: tuple[str, ...], near: str | None, *, is_compared: bool) -> str:
    if near is not None:
        return f": write {near}"
    return f": {list_names(known)}" if is_compared and name not in NAMES else ""


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
