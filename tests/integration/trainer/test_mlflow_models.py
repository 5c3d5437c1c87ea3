"""What a script makes of a registered version that knows MLflow and pandas, and nothing of Morrow."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
from mlflow import onnx, pyfunc
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from contracts.clock import format_moment
from contracts.manifest import read_manifest
from tests.integration.artefacts import CUTOFF, WEEK, write_version
from tests.integration.counted_calls import counting_opened_files
from trainer.tracking.flavours import example_rows, save_flavours
from trainer.tracking.registry import Registry

# MLflow warns of type hints of its own when a script loads its first model.
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType")

SCRIPT = """
import json, sys
import mlflow, pandas

frame = pandas.DataFrame(json.loads(sys.argv[2]))
frame["at"] = pandas.to_datetime(frame["at"])
answers = mlflow.pyfunc.load_model(f"models:/{sys.argv[1]}@champion").predict(frame)
assert not any(name.split(".")[0] in ("contracts", "trainer", "service", "torch") for name in sys.modules)
print(json.dumps(answers.to_dict("list")))
"""
ROWS = {
    "at": [format_moment(CUTOFF), format_moment(CUTOFF + WEEK)],
    "distance": [1400.0, 200.0],
    "wind": [3.5, None],
    "carrier": ["UA", "??"],
}


Ask = Callable[[pd.DataFrame], pd.DataFrame]


def save_version(folder: Path, **version: Any) -> str:
    """The folder of a version as MLflow has it."""
    artefact = write_version(folder / "artefact", **version)
    save_flavours(folder / "model", artefact, read_manifest(artefact))
    return str(folder / "model")


def load(model: str) -> Ask:
    """What asks a model that is loaded as a pyfunc."""
    loaded: Any = pyfunc.load_model(model)
    ask: Ask = loaded.predict
    return ask


@pytest.fixture(scope="module")
def predict(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    return load(save_version(tmp_path_factory.mktemp("model"), gaps=[(CUTOFF - 7 * WEEK, CUTOFF - 6 * WEEK)]))


def rows(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({**ROWS, **changes})


def test_a_script_that_knows_only_mlflow_asks_the_champion(registry: Registry, tmp_path: Path) -> None:
    name = f"tiny_{uuid4().hex[:8]}"
    manifest = read_manifest(write_version(tmp_path / "artefact", task=name))
    version = registry.register(tmp_path / "artefact", manifest, registry.start_run(name, "a cycle", {}), {})
    registry.move_alias(name, version)
    answered = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, json.dumps(ROWS)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MLFLOW_TRACKING_URI": registry.url},
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(answered.stdout)
    expected = np.array(manifest.probe.outputs)
    assert list(answers) == ["prediction", "probability_late", "probability_on_time"]
    assert np.allclose([answers["probability_late"], answers["probability_on_time"]], expected.T, atol=1e-6)
    assert answers["prediction"] == [("late", "on_time")[place] for place in expected.argmax(axis=1)]


def test_the_signature_and_the_example_are_those_of_the_task(tmp_path: Path) -> None:
    saved = save_version(tmp_path)
    model = Model.load(saved)
    signature = model.signature
    assert signature is not None
    assert [(column.name, column.required) for column in signature.inputs.inputs] == [
        ("at", True),
        ("distance", True),
        ("carrier", True),
        ("wind", False),
    ]
    assert signature.outputs.input_names() == ["prediction", "probability_late", "probability_on_time"]
    example: Any = model.load_input_example(saved)
    assert list(example.columns) == ["at", "distance", "carrier", "wind"]
    assert len(load(saved)(example)) == len(example)


def test_saving_a_version_does_not_read_what_is_installed_and_its_example_is_json(tmp_path: Path) -> None:
    artefact = write_version(tmp_path / "artefact")
    with counting_opened_files(Path(sys.prefix)) as opened:
        save_flavours(tmp_path / "model", artefact, read_manifest(artefact))
    assert not [file for file in opened if file.name in ("RECORD", "top_level.txt")]
    example = json.loads((tmp_path / "model" / "serving_input_example.json").read_bytes(), parse_constant=pytest.fail)
    assert example["dataframe_split"]["data"][1] == [format_moment(CUTOFF + WEEK), 200.0, "??", None]


def test_a_regression_answers_with_prediction_and_scale(tmp_path: Path) -> None:
    predict = load(save_version(tmp_path, spec={"target": {"name": "delay_minutes", "kind": "regression"}}))
    manifest = read_manifest(tmp_path / "artefact")
    answers = predict(example_rows(manifest))
    assert list(answers.columns) == ["prediction", "scale"]
    assert np.allclose(answers.to_numpy(), manifest.probe.outputs, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 257])
def test_any_number_of_rows_is_answered_each_as_if_alone(predict: Ask, count: int) -> None:
    many = pd.concat([rows()] * 129, ignore_index=True).head(count)
    alone = predict(rows())["probability_late"].to_numpy()
    assert np.allclose(predict(many)["probability_late"], np.resize(alone, count), atol=1e-6)


def test_moments_are_read_in_every_usual_form(predict: Ask) -> None:
    aware = pd.to_datetime(pd.Series(ROWS["at"]))
    forms = (
        aware,
        aware.dt.tz_convert("America/New_York"),
        aware.dt.tz_localize(None),
        aware.map(lambda moment: moment.isoformat()),
        pd.Series([CUTOFF, CUTOFF + WEEK]),
    )
    answers = [predict(rows(at=form))["probability_late"].tolist() for form in forms]
    assert answers == [answers[0]] * len(forms)


def test_answers_keep_the_index_of_their_rows(predict: Ask) -> None:
    assert predict(rows().set_axis([7, 3])).index.tolist() == [7, 3]


def test_an_optional_feature_may_be_left_out_or_missing(predict: Ask) -> None:
    missing = predict(rows(wind=[None, None]).astype({"wind": float}))
    assert missing.equals(predict(rows().drop(columns="wind")))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"at": [CUTOFF, CUTOFF + 3 * WEEK]}, "1 of 2 rows lie outside the moments"),
        ({"at": [CUTOFF, CUTOFF - 7 * WEEK]}, "1 of 2 rows lie in a gap between the rows of training"),
        ({"at": [format_moment(CUTOFF), None]}, "`at` is missing"),
        ({"distance": [1400.0, None]}, "distance is missing in 1 of 2 rows"),
        ({"carrier": ["UA", None]}, "carrier is missing in 1 of 2 rows"),
        ({"distance": [1400.0, float("inf")]}, "distance is not finite"),
    ],
)
def test_rows_that_break_a_rule_are_refused(predict: Ask, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        predict(rows(**changes))


def test_mlflow_refuses_frames_that_do_not_match_the_signature(predict: Ask) -> None:
    with pytest.raises(MlflowException, match=r"missing inputs \['distance'\]"):
        predict(rows().drop(columns="distance"))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("distance", pd.Series([1400, 200])),
        ("distance", pd.Series([1400, 200], dtype="Int64")),
        ("distance", pd.Series([1400, 200], dtype="float32")),
        ("distance", pd.Series(["1400", "200"])),
        ("distance", pd.Series([1400, 200], dtype="category")),
        ("wind", pd.Series([3.5, None], dtype="Float64")),
        ("carrier", pd.Series(["UA", "??"], dtype="category")),
        ("carrier", pd.Series(["UA", "??"], dtype="string[pyarrow]")),
        ("carrier", pd.Series(["UA", "??"], dtype=object)),
    ],
)
def test_columns_of_every_type_that_holds_the_values_get_the_same_answers(
    predict: Ask, column: str, values: "pd.Series[Any]"
) -> None:
    pd.testing.assert_frame_equal(predict(rows(**{column: values})), predict(rows()))


KINDS = [
    {"name": "distance", "kind": "integer"},
    {"name": "carrier", "kind": "category"},
    {"name": "wind", "kind": "boolean", "optional": True},
]


@pytest.mark.parametrize(
    "windy",
    [
        pd.Series([True, None], dtype=object),
        pd.Series([True, None], dtype="boolean"),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, None]),
        pd.Series(["true", None]),
    ],
)
def test_integers_and_booleans_are_read_from_every_type_that_holds_them(
    tmp_path: Path, windy: "pd.Series[Any]"
) -> None:
    predict = load(save_version(tmp_path, spec={"features": KINDS}))
    answers = predict(rows(distance=pd.Series([1400, 200]), wind=windy))
    plain = load(save_version(tmp_path / "plain"))
    pd.testing.assert_frame_equal(answers, plain(rows(wind=[1.0, None])))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"distance": [1400.5, 200.0]}, "distance is an integer and has a fraction"),
        ({"distance": ["far", "200"]}, "distance is 'far' in some rows, not a number"),
        ({"wind": [2.0, None]}, "wind is a boolean and neither true nor false"),
        ({"wind": ["maybe", None]}, "wind is 'maybe' in some rows, not true or false"),
    ],
)
def test_values_that_are_not_of_the_kind_are_named(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    predict = load(save_version(tmp_path, spec={"features": KINDS}))
    with pytest.raises(ValueError, match=complaint):
        predict(rows(**{"wind": [None, None], **changes}))


def test_the_example_of_integers_and_booleans_holds_such_values(tmp_path: Path) -> None:
    saved = save_version(tmp_path, spec={"features": KINDS})
    example: Any = Model.load(saved).load_input_example(saved)
    assert set(example["wind"].dropna()) <= {True, False}
    assert all(float(value).is_integer() for value in example["distance"])
    assert len(load(saved)(example)) == len(example)


def test_predictions_stay_within_the_bounds_of_the_target(tmp_path: Path) -> None:
    spec = {"target": {"name": "delay", "kind": "regression", "minimum": 1.0, "maximum": 1.5}}
    answers = load(save_version(tmp_path, spec=spec))(rows(distance=[-5000.0, 5000.0]))
    assert answers["prediction"].tolist() == [1.0, 1.5]


def test_the_bare_graph_is_there_for_whoever_wants_to_ask_beyond_the_horizon(tmp_path: Path) -> None:
    graph = onnx.load_model(save_version(tmp_path))
    assert [given.name for given in graph.graph.input] == ["at", "numbers", "categories"]
