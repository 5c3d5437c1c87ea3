"""Names in what a client sends: those that are missing, that nobody asked for, or that are given twice."""

from collections.abc import Collection, Sequence
from itertools import islice

from contracts.errors import Fault, InvalidInput, NotFound
from service.validation.lossless_json import JsonObject
from service.validation.options import NAMES

MAX_FAULTS_PER_ROW = 50
MAX_SHOWN = 100


def judge_names(
    given: JsonObject, required: Sequence[str], optional: Collection[str], of: str, prefix: str = ""
) -> list[Fault]:
    """Names that are unknown, given twice or missing. Of the former two, the first few of each."""
    unknown = (name for name in given if name not in required and name not in optional)
    return [
        *(Fault(prefix + printable(name), f"is not one of {of}") for name in islice(unknown, MAX_FAULTS_PER_ROW // 2)),
        *(
            Fault(prefix + printable(name), "is given more than once")
            for name in given.repeated[: MAX_FAULTS_PER_ROW // 2]
        ),
        *(Fault(prefix + name, "is required") for name in required if name not in given),
    ]


def judge_body_names(given: JsonObject, required: Sequence[str], of: str) -> list[Fault]:
    """The same of the body of a question, where a parameter of the query string is shown its place."""
    return [
        Fault(fault.field, f"is a parameter of the query string (POST /predict?{fault.field}=…), not of the body")
        if fault.field in NAMES
        else fault
        for fault in judge_names(given, required, (), of)
    ]


def only_task(names: tuple[str, ...]) -> str:
    """The one task there is. Raises InvalidInput, NotFound."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("There is no task yet: define one with PUT /tasks/{task}.")
    raise InvalidInput([Fault("task", f"is required, for there is more than one: {', '.join(names[:20])}")])


def printable(text: str) -> str:
    """A name or id that a client sent, short and safe to print."""
    return text[:MAX_SHOWN].encode("utf-8", "backslashreplace").decode()
