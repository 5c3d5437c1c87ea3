"""`/invocations`, as MLflow's scoring server takes it: four forms of JSON, and CSV.

Columns are features, and `at` is the moment of each row. The predictions are the answers of POST /predict.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from contracts.truth import TRUTHS
from service.protocols.asked_rows import decode_body, encode_rows, find_repeated, flatten, rows_of_columns
from service.validation.lossless_json import decode_text
from service.validation.names import printable
from service.validation.options import Options, take_options

CSV = "text/csv"
_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")

Rows = Sequence[Mapping[str, Any]]


def read_invocation(body: bytes, media_type: str, task: Task, max_rows: int) -> tuple[bytes, Options]:
    """The body of POST /predict for an invocation, and its options. Raises Malformed and InvalidInput.

    Of a CSV with more than `max_rows` rows, one more is read, so that it is refused.
    """
    if media_type == CSV:
        return encode_rows(_read_csv(decode_text(body), task, max_rows)), Options()
    given = decode_body(body)
    params = given.pop("params", None)
    named = [name for name in _FORMS if name in given]
    unknown = [name for name in given if name not in _FORMS]
    if len(named) != 1 or unknown:
        found = ", ".join(map(printable, given)) or "none"
        raise InvalidInput([Fault("body", f"holds one of {', '.join(_FORMS)}, and `params`; it has {found}")])
    return encode_rows(_READERS[named[0]](given[named[0]])), _read_params(params)


def _read_split(given: Any) -> Rows:
    columns: Any = given.get("columns") if isinstance(given, dict) else None
    data: Any = given.get("data") if isinstance(given, dict) else None
    if not (isinstance(columns, list) and all(isinstance(name, str) for name in columns) and _is_table(data)):
        raise InvalidInput([Fault("dataframe_split", "has no `columns` of texts and `data` of lists")])
    _refuse_repeated(columns)
    for place, row in enumerate(data):
        if len(row) != len(columns):
            reason = f"has {len(row)} values for {len(columns)} columns"
            raise InvalidInput([Fault(f"dataframe_split.data[{place}]", reason)])
    return [dict(zip(columns, row, strict=True)) for row in data]


def _refuse_repeated(columns: Sequence[str]) -> None:
    if repeated := find_repeated(columns):
        raise InvalidInput([Fault(printable(name), "is a column more than once") for name in repeated])


def _is_table(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(row, list) for row in data)


def _read_records(given: Any) -> Rows:
    return _require_records("dataframe_records", given)


def _read_instances(given: Any) -> Rows:
    return _require_records("instances", given)


def _read_inputs(given: Any) -> Rows:
    if not isinstance(given, dict):
        return _require_records("inputs", given)
    for name, values in given.items():
        if not isinstance(values, list):
            raise InvalidInput([Fault(f"inputs.{printable(name)}", "is no list with a value for each row")])
    return rows_of_columns({name: flatten(values) for name, values in given.items()})


def _require_records(name: str, given: Any) -> Rows:
    if not (isinstance(given, list) and all(isinstance(row, dict) for row in given)):
        reason = "is no list of objects, whose keys name the features and `at`: values without names are not taken"
        raise InvalidInput([Fault(name, reason)])
    return given


def _read_params(params: Any) -> Options:
    """`coverage` and `rate`, as the parameters of POST /predict. Raises InvalidInput."""
    if params is None:
        return Options()
    if not isinstance(params, dict):
        raise InvalidInput([Fault("params", "is no object")])
    faults: list[Fault] = []
    pairs = [(name, str(value).lower()) for name, value in params.items() if name in ("coverage", "rate")]
    faults += [
        Fault(f"params.{printable(name)}", "is not known: there are coverage and rate")
        for name in params
        if name not in ("coverage", "rate")
    ]
    _, options, _ = take_options(pairs, faults)
    if faults:
        raise InvalidInput(faults)
    return options


def _read_csv(text: str, task: Task, max_rows: int) -> Rows:
    """The rows of a table with a header, as `DataFrame.to_csv` writes it: a column without a name is not read."""
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        names = next(lines, [])
        table = [*islice(filter(None, lines), max_rows + 1)]
    except csv.Error as error:
        raise InvalidInput([Fault("body", f"is no CSV: {error}")]) from None
    kinds = {feature.name: feature.kind for feature in task.features}
    _refuse_repeated([name for name in names if name])
    rows: list[dict[str, Any]] = []
    for place, row in enumerate(table):
        if len(row) != len(names):
            raise InvalidInput([Fault(f"rows[{place}]", f"has {len(row)} cells for {len(names)} columns")])
        rows.append({name: _read_cell(cell, kinds.get(name)) for name, cell in zip(names, row, strict=True) if name})
    return rows


def _read_cell(cell: str, kind: str | None) -> Any:
    """A cell in JSON's types; one that is none of its kind stays a text, which the rules refuse."""
    if cell == "":
        return None
    if kind == "boolean":
        return TRUTHS.get(cell, cell)
    if kind not in ("number", "integer"):
        return cell
    for read in (int, float):
        try:
            found = read(cell)
        except ValueError:
            continue
        return found if read is int or abs(found) < float("inf") else cell
    return cell


_READERS: dict[str, Callable[[Any], Rows]] = {
    "dataframe_split": _read_split,
    "dataframe_records": _read_records,
    "instances": _read_instances,
    "inputs": _read_inputs,
}
