"""Parameters of paths and queries: unknown and repeated parameters of a query are refused, never ignored."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Annotated

from fastapi import Path
from pydantic import JsonValue
from starlette.datastructures import QueryParams
from starlette.requests import Request

from contracts.clock import parse_moment
from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import IDENTIFIER
from contracts.truth import TRUTHS
from service.validation.names import printable

TaskInPath = Annotated[
    str, Path(alias="task", description="name of the task", json_schema_extra={"pattern": f"^{IDENTIFIER}$"})
]


def takes_only(*names: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses every parameter except these, and each that is given twice."""

    async def check(request: Request) -> None:  # a coroutine: it does not wait, so it needs no thread
        check_parameters(request.query_params, names)

    return check


def check_parameters(given: QueryParams, names: Collection[str]) -> None:
    """Raise InvalidInput for every parameter that is unknown or given twice."""
    counts = Counter(name for name, _ in given.multi_items())
    faults = [
        Fault(printable(name), "is given more than once" if name in names else _say_unknown(names))
        for name, count in counts.items()
        if count > 1 or name not in names
    ]
    if faults:
        raise InvalidInput(faults)


def _say_unknown(names: Collection[str]) -> str:
    """That a parameter is unknown, and which are known."""
    known = ", ".join(names)
    return f"is not a parameter of this path; it takes {known or 'none'}"


# The schema of a text that `check_texts` takes.
WITHOUT_NUL: dict[str, JsonValue] = {"pattern": r"^[^\u0000]*$"}


def check_texts(given: Mapping[str, str]) -> None:
    """Raise InvalidInput for each text with a character that no name holds and PostgreSQL cannot compare with."""
    faults = [Fault(name, "holds a control character") for name, text in given.items() if "\x00" in text]
    if faults:
        raise InvalidInput(faults)


def read_flag(given: QueryParams, name: str) -> bool:
    """A parameter that is true or false, and false if absent, in the spellings that FastAPI accepts.

    Raises InvalidInput.
    """
    found = TRUTHS.get(given.get(name, "false").lower())
    if found is None:
        raise InvalidInput([Fault(name, "is neither true nor false")])
    return found


def read_moment(text: str, name: str) -> int:
    """A moment in a query, in microseconds. Raises InvalidInput."""
    try:
        return parse_moment(text)
    except ValueError as error:
        raise InvalidInput([Fault(name, str(error))]) from None


def read_id(text: str, name: str) -> int:
    """The id of a numbered row, in a path or a query. Raises InvalidInput."""
    if not re.fullmatch(ID_PATTERN, text):
        raise InvalidInput([Fault(name, "is not an id, such as 17")])
    return int(text)


ID_PATTERN = "[1-9][0-9]{0,17}"
# Longer than every name, so that a longer text finds nothing.
MAX_NAME = 200
