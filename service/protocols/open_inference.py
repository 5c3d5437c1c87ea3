"""The Open Inference Protocol, version 2: tensors in, tensors out.

An input is a feature with a value for each row, or `at` with the moment of each row, RFC 3339 as BYTES. Outputs are
columns of the answers of POST /predict.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from contracts.errors import Fault, InvalidInput
from contracts.task import Kind, Task
from service.models.answer import Answer
from service.models.forecaster import Forecaster
from service.protocols.asked_rows import AT, decode_body, encode_rows, flatten, rows_of_columns
from service.validation.names import printable

PLATFORM = "morrow"
_INTEGERS = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})
_FLOATS = frozenset({"FP16", "FP32", "FP64"})
_TYPES: dict[Kind, frozenset[str]] = {
    "number": _INTEGERS | _FLOATS,
    "integer": _INTEGERS | _FLOATS,
    "boolean": frozenset({"BOOL"}) | _INTEGERS,
    "category": frozenset({"BYTES"}),
}
_NAMED_TYPES: dict[Kind, str] = {"number": "FP64", "integer": "INT64", "boolean": "BOOL", "category": "BYTES"}


class Tensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a request or of an answer. Metadata of a tensor has no data, and -1 for the number of rows."""

    name: str
    datatype: str
    shape: Sequence[int]
    parameters: dict[str, Any] = {}
    data: Sequence[Any] | msgspec.UnsetType = UNSET


class Metadata(msgspec.Struct, frozen=True):
    """What a version takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class Inference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request; `parameters` hold what is the same for all of its rows."""

    model_name: str
    model_version: str
    outputs: list[Tensor]
    id: str | msgspec.UnsetType = UNSET
    parameters: dict[str, Any] = {}


class _Identified(msgspec.Struct, frozen=True):
    id: str


_READ_ID = msgspec.json.Decoder(_Identified)


class Asked(msgspec.Struct, frozen=True):
    """A request: the body of POST /predict, its id, and the names of the outputs that it asks for, None for all."""

    body: bytes
    id: str | None
    outputs: Sequence[str] | None


def describe_version(forecaster: Forecaster) -> Metadata:
    """The metadata of the version that answers."""
    inputs = [Tensor(one.name, _NAMED_TYPES[one.kind], [-1]) for one in forecaster.task.features]
    inputs.append(Tensor(AT, "BYTES", [-1]))
    outputs = [
        Tensor(name, datatype, [-1, *width], _label(name, forecaster.manifest.classes))
        for name, (datatype, width) in _output_types(forecaster.task, forecaster.manifest.classes).items()
    ]
    return Metadata(forecaster.task.name, [forecaster.version], PLATFORM, inputs, outputs)


def read_inference(body: bytes, task: Task) -> Asked:
    """A request for inference. Raises Malformed and InvalidInput."""
    given = decode_body(body)
    inputs = given.get("inputs")
    if not (isinstance(inputs, list) and inputs and all(isinstance(one, dict) for one in inputs)):
        raise InvalidInput([Fault("inputs", "is no list of tensors")])
    kinds: dict[str, Kind] = {feature.name: feature.kind for feature in task.features}
    columns: dict[str, Sequence[Any]] = {}
    faults: list[Fault] = []
    for place, tensor in enumerate(inputs):
        name = tensor.get("name")
        if not isinstance(name, str) or name in columns:
            faults.append(Fault(f"inputs[{place}].name", "is given twice" if isinstance(name, str) else "is no text"))
            continue
        columns[name] = _read_tensor(tensor, "category" if name == AT else kinds.get(name), f"inputs[{place}]", faults)
    if faults:
        raise InvalidInput(faults)
    rows = max(map(len, columns.values()))
    if len(columns.get(AT, ())) == 1:
        columns[AT] = [*columns[AT]] * rows
    request_id = given.get("id")
    if request_id is not None and not (isinstance(request_id, str) and printable(request_id) == request_id):
        raise InvalidInput([Fault("id", "is no text that can be shown")])
    return Asked(encode_rows(rows_of_columns(columns)), request_id, _read_outputs(given.get("outputs")))


def _read_tensor(tensor: Mapping[str, Any], kind: Kind | None, field: str, faults: list[Fault]) -> Sequence[Any]:
    """The values of a tensor of shape (n,) or (n, 1); what is wrong is added to `faults`."""
    datatype, shape, data = tensor.get("datatype"), tensor.get("shape"), tensor.get("data")
    if not isinstance(data, list):
        reason = "is no list: send values as JSON, such as with binary_data=False of tritonclient"
        faults.append(Fault(f"{field}.data", reason))
        return ()
    values = flatten(data)
    if shape not in ([len(values)], [len(values), 1]):
        reason = f"does not fit {len(values)} values: a tensor has one value for each row, [n] or [n, 1]"
        faults.append(Fault(f"{field}.shape", reason))
    if kind is not None and (not isinstance(datatype, str) or datatype not in _TYPES[kind]):
        allowed = ", ".join(sorted(_TYPES[kind]))
        faults.append(Fault(f"{field}.datatype", f"is {printable(str(datatype))}, and can be {allowed}"))
    if kind == "boolean":
        return [bool(value) if value in (0, 1) else value for value in values]
    return values


def _read_outputs(given: Any) -> list[str] | None:
    """The names of the outputs that a request asks for. Raises InvalidInput."""
    if given is None or given == []:
        return None
    if not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
        raise InvalidInput([Fault("outputs", "is no list of objects with a name")])
    return [str(one.get("name")) for one in given]


def write_inference(
    asked: Asked, forecaster: Forecaster, answers: Sequence[Answer], encoded: Sequence[bytes]
) -> Inference:
    """The answers as tensors; `encoded` are the same with their ids.

    Raises InvalidInput if an output is asked for that there is not.
    """
    classes = forecaster.manifest.classes
    types = _output_types(forecaster.task, classes)
    if unknown := [name for name in asked.outputs or () if name not in types]:
        known = ", ".join(types)
        raise InvalidInput(
            [Fault("outputs", f"{printable(name)} is not among them: there are {known}") for name in unknown]
        )
    first = answers[0]
    return Inference(
        model_name=first.task,
        model_version=first.version,
        outputs=[
            Tensor(
                name,
                types[name][0],
                [len(answers), *types[name][1]],
                _label(name, classes),
                _column(name, answers, encoded),
            )
            for name in asked.outputs or types
        ],
        id=UNSET if asked.id is None else asked.id,
        parameters={
            "trained_until": first.trained_until,
            "valid_until": first.valid_until,
            "error_name": first.error_name,
        },
    )


def _output_types(task: Task, classes: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """Output -> its type, and its shape after the rows."""
    values: dict[str, tuple[str, list[int]]] = (
        {"prediction": ("BYTES", []), "probabilities": ("FP64", [len(classes)])}
        if task.is_classification
        else {"prediction": ("FP64", []), "scale": ("FP64", []), "interval": ("FP64", [2])}
    )
    return values | {"expected_error": ("FP64", []), "at": ("BYTES", []), "id": ("BYTES", [])}


def _label(name: str, classes: Sequence[str]) -> dict[str, Any]:
    """The classes of the columns of probabilities."""
    return {"classes": [*classes]} if name == "probabilities" else {}


def _column(name: str, answers: Sequence[Answer], encoded: Sequence[bytes]) -> list[Any]:
    """An output's values row after row; null if there is none, such as an expected error before trained_until."""
    if name == "id":
        return [_READ_ID.decode(one).id for one in encoded]
    if name == "probabilities":
        return [share for answer in answers for share in dict(answer.probabilities or {}).values()]
    if name == "interval":
        return [bound for answer in answers for bound in (answer.interval or (None, None))]
    return [getattr(answer, name) for answer in answers]
