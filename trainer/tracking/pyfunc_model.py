"""The model that MLflow's `pyfunc.load_model` gets from a version: a frame of rows in, a frame of answers out.

MLflow's own loader of ONNX models refuses the text columns of pandas 3 and flattens probabilities. So every version
carries this file as `code/morrow_frames.py`, for scripts with MLflow and without Morrow. It imports nothing of ours, is
source code and never unpickled, and runs the same graph as the service. It does not know of a horizon that was closed
after the release. To predict beyond the horizon, load the bare graph with `mlflow.onnx.load_model`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from numpy.typing import NDArray

_TRUTHS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


class FrameModel:
    """The graph of a version, and its manifest's rules for rows and moments."""

    def __init__(self, folder: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:  # noqa: ARG002
        """Predictions with the index of the rows, `prediction` first.

        Classification adds `probability_<class>` for every class, regression adds `scale`, the standard deviation.
        `at` is a column of moments (in UTC if without an offset, RFC 3339 as text, or microseconds since the epoch).
        Every feature is a column; an optional one may be left out. Columns may have any type of pandas that holds the
        values: integers, booleans, `category`, strings of pyarrow. Raises ValueError for rows that break a rule.
        """
        features = self.manifest["task"]["features"]
        numbers = [feature for feature in features if feature["kind"] != "category"]
        categories = [feature for feature in features if feature["kind"] == "category"]
        feed = {"at": self._read_at(model_input)}
        if numbers:
            feed["numbers"] = np.column_stack([_read_numbers(model_input, feature) for feature in numbers])
        if categories:
            feed["categories"] = np.column_stack([_read_categories(model_input, feature) for feature in categories])
        outputs = self._session.run(None, feed)
        return pd.DataFrame(self._name(outputs), index=model_input.index)

    def _name(self, outputs: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        classes = self.manifest["classes"]
        if not classes:
            target, means = self.manifest["task"]["target"], outputs[0].astype(np.float64)
            low, high = (target.get(name) for name in ("minimum", "maximum"))
            bounded = np.clip(means, -np.inf if low is None else low, np.inf if high is None else high)
            return {"prediction": bounded, "scale": outputs[1].astype(np.float64)}
        probabilities = outputs[0].astype(np.float64)
        best = np.array(classes, object)[probabilities.argmax(axis=1)]
        shares = {f"probability_{name}": probabilities[:, place] for place, name in enumerate(classes)}
        return {"prediction": best, **shares}

    def _read_at(self, rows: pd.DataFrame) -> NDArray[np.int64]:
        """Microseconds since the epoch, all within the version's validity."""
        at = _read_moments(rows["at"])
        first, cutoff = self.manifest["trained_from"], self.manifest["cutoff"]
        last = cutoff + self.manifest["horizon"] * self.manifest["window"]
        if num_outside := int(((at < first) | (at > last)).sum()):
            raise ValueError(
                f"{num_outside} of {len(at)} rows lie outside the moments for which this version is validated: "
                f"{_show(first)} to {_show(last)}."
            )
        for begin, end in self.manifest.get("gaps", ()):
            if num_outside := int(((at >= begin) & (at < end)).sum()):
                raise ValueError(
                    f"{num_outside} of {len(at)} rows lie in a gap between the rows of training: {_show(begin)} to "
                    f"{_show(end)}."
                )
        return at


def _read_moments(values: "pd.Series[Any]") -> NDArray[np.int64]:
    if pd.api.types.is_integer_dtype(values.dtype):
        return np.asarray(values, np.int64)
    moments = pd.to_datetime(values, utc=True, format=None if values.dtype.kind == "M" else "ISO8601")
    if moments.isna().any():
        raise ValueError("`at` is missing in some rows.")
    return np.asarray(moments.astype("datetime64[us, UTC]").astype(np.int64))


def _read_numbers(rows: pd.DataFrame, feature: dict[str, Any]) -> NDArray[np.float64]:
    """A column `(n,)`, NaN if missing."""
    name, kind = feature["name"], feature["kind"]
    if name not in rows:
        return _check_missing(np.full(len(rows), np.nan), feature)
    column, read = rows[name], _read_boolean if kind == "boolean" else _read_number
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        values = column.to_numpy(np.float64)
    else:
        values = np.array([np.nan if pd.isna(value) else read(value, name) for value in column], np.float64)
    if np.isinf(values).any():
        raise ValueError(f"Feature {name} is not finite in some rows.")
    if kind == "integer" and (np.nan_to_num(values) % 1).any():
        raise ValueError(f"Feature {name} is an integer and has a fraction in some rows.")
    if kind == "boolean" and not np.isin(values[~np.isnan(values)], (0, 1)).all():
        raise ValueError(f"Feature {name} is a boolean and neither true nor false in some rows.")
    return _check_missing(values, feature)


def _read_number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"Feature {name} is {value!r} in some rows, not a number.") from None


def _read_boolean(value: Any, name: str) -> bool:
    found = _TRUTHS.get(str(value).lower())
    if found is None:
        raise ValueError(f"Feature {name} is {value!r} in some rows, not true or false.")
    return found


def _read_categories(rows: pd.DataFrame, feature: dict[str, Any]) -> NDArray[np.object_]:
    """A column `(n,)` of str, "" if missing."""
    name = feature["name"]
    if name not in rows:
        return _check_missing(np.full(len(rows), "", object), feature)
    return _check_missing(np.array(["" if pd.isna(value) else _spell(value) for value in rows[name]], object), feature)


def _spell(value: Any) -> str:
    """A category as `morrow events import` writes it: booleans in lower case, whole numbers without a fraction."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _check_missing(values: NDArray[Any], feature: dict[str, Any]) -> NDArray[Any]:
    is_missing = values == "" if feature["kind"] == "category" else np.isnan(values)
    if not feature["optional"] and is_missing.any():
        raise ValueError(f"Feature {feature['name']} is missing in {int(is_missing.sum())} of {len(values)} rows.")
    return values


def _show(micros: int) -> str:
    return f"{np.datetime64(micros, 'us').astype('datetime64[s]')}Z"


def _load_pyfunc(path: str) -> FrameModel:
    """MLflow's entry point, by name."""
    return FrameModel(Path(path))
