"""Answers in JSON, encoded from the structs that also describe them in the OpenAPI document."""

import msgspec
from starlette.responses import Response

from contracts.spec import Spec
from service.web.bodies import JSON


def answer_json(body: msgspec.Struct, status: int = 200) -> Response:
    """A struct as the body of an answer; a task and its parts are dumped by their own models."""
    return Response(_ENCODER.encode(body), status, media_type=JSON)


def _dump(model: object) -> object:
    assert isinstance(model, Spec)
    return model.model_dump(mode="json")


_ENCODER = msgspec.json.Encoder(enc_hook=_dump)
