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


class FrameModel:
    """The graph of a version, and its manifest's rules for rows and moments."""

    def __init__(self, folder: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:  # noqa: ARG002
        """Predictions with the index of the rows, `prediction` first.

        Classification adds `probability_<class>` for every class, regression adds `scale`, the standard deviation.
        `at` is a column of moments (in UTC if without an offset, RFC 3339 as text, or microseconds since the epoch).
        Every feature is a column; an optional one may be left out. Raises ValueError for rows that break a rule.
        """
        at = self._read_at(model_input)
        feed = {"at": at}
        for kind, read in (("number", _read_numbers), ("category", _read_categories)):
            features = [feature for feature in self.manifest["task"]["features"] if feature["kind"] == kind]
            if features:
                feed[{"number": "numbers", "category": "categories"}[kind]] = np.column_stack(
                    [_check_missing(read(model_input, feature["name"]), feature) for feature in features]
                )
        outputs = self._session.run(None, feed)
        return pd.DataFrame(self._name(outputs), index=model_input.index)

    def _name(self, outputs: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        classes = self.manifest["classes"]
        if not classes:
            return {"prediction": outputs[0].astype(np.float64), "scale": outputs[1].astype(np.float64)}
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
        return at


def _read_moments(values: "pd.Series[Any]") -> NDArray[np.int64]:
    if pd.api.types.is_integer_dtype(values.dtype):
        return np.asarray(values, np.int64)
    moments = pd.to_datetime(values, utc=True, format=None if values.dtype.kind == "M" else "ISO8601")
    if moments.isna().any():
        raise ValueError("`at` is missing in some rows.")
    return np.asarray(moments.astype("datetime64[us, UTC]").astype(np.int64))


def _read_numbers(rows: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column `(n,)`, NaN if missing."""
    if name not in rows:
        return np.full(len(rows), np.nan)
    values = pd.to_numeric(rows[name]).to_numpy(np.float64, na_value=np.nan)
    if np.isinf(values).any():
        raise ValueError(f"Feature {name} is not finite in some rows.")
    return values


def _read_categories(rows: pd.DataFrame, name: str) -> NDArray[np.object_]:
    """A column `(n,)` of str, "" if missing."""
    if name not in rows:
        return np.full(len(rows), "", object)
    return np.array(["" if pd.isna(value) else str(value) for value in rows[name]], object)


def _check_missing(values: NDArray[Any], feature: dict[str, Any]) -> NDArray[Any]:
    is_missing = np.isnan(values) if feature["kind"] == "number" else values == ""
    if not feature["optional"] and is_missing.any():
        raise ValueError(f"Feature {feature['name']} is missing in {int(is_missing.sum())} of {len(values)} rows.")
    return values


def _show(micros: int) -> str:
    return f"{np.datetime64(micros, 'us').astype('datetime64[s]')}Z"


def _load_pyfunc(path: str) -> FrameModel:
    """MLflow's entry point, by name."""
    return FrameModel(Path(path))
