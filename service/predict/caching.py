"""How an answer of GET /predict may be kept: by its client alone, and used again only after asking (decision 52).

An answer about a given moment depends on its question and on what the version's tag names. So it has that tag, and
`If-None-Match` asks whether it still holds: 304 says so without running the model. Its id stays that of the first
answer, which alone is logged. An answer about the present moment is another one a moment later, and is not kept.
"""

from starlette.responses import Response
from starlette.types import Scope

from service.models.forecaster import LoadedForecaster, Question

_KEPT = b'etag: W/"%b"\r\ncache-control: private, no-cache\r\nvary: authorization\r\n'
_NOT_KEPT = b"cache-control: no-store\r\n"


def caching_lines(forecaster: LoadedForecaster, question: Question) -> bytes:
    """The lines of the answer's head."""
    return _NOT_KEPT if question.row.at is None else _KEPT % forecaster.tag


def find_unchanged(scope: Scope, forecaster: LoadedForecaster, question: Question) -> Response | None:
    """304 if the client names the tag of this version, so that its answer still holds.

    Raises as `LoadedForecaster.answer` if the question is refused.
    """
    if question.row.at is None:
        return None
    for name, value in scope["headers"]:
        if name == b"if-none-match" and (b'"%b"' % forecaster.tag in value or value.strip() == b"*"):
            forecaster.admit(question)
            lines = caching_lines(forecaster, question).decode("ascii").splitlines()
            return Response(status_code=304, headers=dict(line.split(": ", 1) for line in lines))
    return None
