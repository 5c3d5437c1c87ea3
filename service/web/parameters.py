"""Parameters of the endpoints that are not hot: in a query, unknown and repeated ones are refused, never ignored."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Path
from starlette.requests import Request

from contracts.errors import Fault, InvalidInput
from contracts.spec import IDENTIFIER
from service.validation.names import printable

TaskInPath = Annotated[
    str, Path(alias="task", description="name of the task", json_schema_extra={"pattern": f"^{IDENTIFIER}$"})
]


def takes_only(*names: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses every parameter but these, and each that is given twice. Raises InvalidInput."""

    async def check(request: Request) -> None:  # what does not wait needs no thread
        counts = Counter(name for name, _ in request.query_params.multi_items())
        faults = [
            Fault(printable(name), "is given more than once" if name in names else "is not a parameter of this path")
            for name, count in counts.items()
            if count > 1 or name not in names
        ]
        if faults:
            raise InvalidInput(faults)

    return check
