"""Answers in JSON, encoded from the structs that also describe them in the OpenAPI document."""

import msgspec
from pydantic import BaseModel
from starlette.responses import Response

from service.web.bodies import JSON


def answer_json(body: msgspec.Struct, status: int = 200) -> Response:
    """A struct as the body of an answer; what people write, such as a task's spec, is dumped by its own model."""
    return Response(_ENCODER.encode(body), status, media_type=JSON)


def _dump(model: object) -> object:
    assert isinstance(model, BaseModel)
    return model.model_dump(mode="json")


_ENCODER = msgspec.json.Encoder(enc_hook=_dump)
