"""The paths of both protocols that ask for predictions: raw applications, with the limits of POST /predict."""

import re
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contracts.errors import Fault, InvalidInput, NotFound
from service.errors import Malformed
from service.models.forecaster import LoadedForecaster
from service.predict.endpoint import PredictEndpoint, parse_query
from service.protocols.invocations import CSV, read_invocation
from service.protocols.open_inference import read_inference, write_inference
from service.settings import ServiceSettings
from service.validation.names import printable
from service.validation.options import PLAIN, take_options
from service.web.answered_requests import AnsweredRequests
from service.web.auth import Authenticator, key_name_of
from service.web.bodies import JSON, RequestBody
from service.web.encoded_answer import EncodedAnswer
from service.web.raw_endpoint import RawEndpoint

_ENDS = ("/invocations", "/infer")
_INVOCATIONS = re.compile(r"/tasks/(?P<task>[^/]+)/invocations")
_INFER = re.compile(r"/v2/models/(?P<task>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
_BINARY = b"inference-header-content-length"


class ProtocolEndpoint:
    """The application behind the paths of both protocols that take rows."""

    def __init__(
        self,
        predict: PredictEndpoint,
        authenticator: Authenticator,
        answered: AnsweredRequests,
        settings: ServiceSettings,
    ) -> None:
        self._predict, self._settings = predict, settings
        self._encode = msgspec.json.Encoder().encode

        def answer(route: str, handler: Any) -> RawEndpoint:
            return RawEndpoint(route, {"POST": handler}, authenticator, answered)

        self._invocations = answer("/invocations", self._invoke)
        self._invocations_of_task = answer("/tasks/{task}/invocations", self._invoke)
        self._infer = answer("/v2/models/{task}/infer", self._ask_tensors)
        self._infer_version = answer("/v2/models/{task}/versions/{version}/infer", self._ask_tensors)

    def find(self, path: str) -> tuple[RawEndpoint, dict[str, str]] | None:
        """The application of a path, and the parameters that the path holds; None for a path of others."""
        if not path.endswith(_ENDS):
            return None
        if path == "/invocations":
            return self._invocations, {}
        if (found := _INVOCATIONS.fullmatch(path)) is not None:
            return self._invocations_of_task, found.groupdict()
        if (found := _INFER.fullmatch(path)) is None:
            return None
        if found["version"] is None:
            return self._infer, {"task": found["task"]}
        return self._infer_version, found.groupdict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope["path"])
        assert found is not None
        endpoint, parameters = found
        await endpoint({**scope, "path_params": parameters}, receive, send)

    async def _invoke(self, scope: Scope, receive: Receive) -> Response:
        task, faults = scope["path_params"].get("task"), list[Fault]()
        named, _, others = take_options(parse_query(scope["query_string"]), faults)
        if others or (task is not None and named is not None):
            raise InvalidInput([Fault("task", "is the only parameter, and only if the path names no task")])
        request = RequestBody(scope, receive, self._settings)
        body = await request.read((JSON, CSV))

        def work(forecaster: LoadedForecaster, now: int) -> bytes:
            forecaster.rules.limit_values(body, self._settings.max_rows)
            asked, options = read_invocation(body, request.media_type, forecaster.task, self._settings.max_rows)
            rows = self._predict.answer_rows(forecaster, asked, options, now=now, key_name=key_name_of(scope))
            return b'{"predictions":[%b]}' % b",".join(rows.encoded)

        return EncodedAnswer(await self._predict.answer_in_thread(named if task is None else task, work))

    async def _ask_tensors(self, scope: Scope, receive: Receive) -> Response:
        if any(name == _BINARY for name, _ in scope["headers"]):
            raise Malformed("Binary tensors are not taken: send values as JSON (binary_data=False of tritonclient).")
        body = await RequestBody(scope, receive, self._settings).read()
        parameters = scope["path_params"]

        def work(forecaster: LoadedForecaster, now: int) -> bytes:
            require_version(forecaster.version, parameters.get("version"))
            forecaster.rules.limit_values(body, self._settings.max_rows)
            asked = read_inference(body, forecaster.task)
            rows = self._predict.answer_rows(forecaster, asked.body, PLAIN, now=now, key_name=key_name_of(scope))
            return self._encode(write_inference(asked, forecaster, rows.answers, rows.encoded))

        return EncodedAnswer(await self._predict.answer_in_thread(parameters["task"], work))


def require_version(present: str, asked: str | None) -> None:
    """Raises NotFound unless the version that answers is the one asked for, if one is."""
    if asked is not None and asked != present:
        raise NotFound(f"Version {printable(asked)} does not answer: version {present} does.")
