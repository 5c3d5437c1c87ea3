"""Names in what a client sends: which are missing, unknown or given twice."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from contracts.errors import Fault, InvalidInput, NotFound
from contracts.spec_values import suggest_name
from service.validation.lossless_json import JsonObject
from service.validation.options import NAMES

MAX_FAULTS_PER_ROW = 50
MAX_SHOWN = 100
# Names that a misspelled one is compared with, and how alike two names must be.
MAX_COMPARED = 1000
_LIKENESS = 0.75


def explain_names(
    given: JsonObject, required: Sequence[str], optional: Collection[str], of: str, prefix: str = ""
) -> list[Fault]:
    """Faults of names that are unknown, given twice or missing; at most 25 of each of the first two kinds."""
    unknown = (name for name in given if name not in required and name not in optional)
    return [
        *(Fault(prefix + printable(name), f"is not one of {of}") for name in islice(unknown, MAX_FAULTS_PER_ROW // 2)),
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


@lru_cache(maxsize=1024)
def find_near(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that this one means: the same but for accents, case, blanks and marks, or else a similar one."""
    spelled = {suggest_name(one).casefold(): one for one in known}
    near = get_close_matches(suggest_name(name[:MAX_SHOWN]).casefold(), islice(spelled, MAX_COMPARED), 1, _LIKENESS)
    return spelled[near[0]] if near else None


def only_task(names: tuple[str, ...]) -> str:
    """The only task. Raises NotFound if there is none, InvalidInput if there are more."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("There is no task yet: define one with PUT /tasks/{task}.")
    raise InvalidInput([Fault("task", f"is required, because there is more than one task: {', '.join(names[:20])}")])


def printable(text: str) -> str:
    """A name or id from a client, cut and escaped for answers and logs."""
    return text[:MAX_SHOWN].encode("utf-8", "backslashreplace").decode()
