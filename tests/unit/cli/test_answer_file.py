"""The file of answers by itself: names of columns, and lines that are long."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from cli.file_rows.rejects import append_rejects
from cli.file_rows.rows import Row
from cli.predicting.answer_file import AnswerFile
from contracts.errors import InvalidInput, Unavailable
from contracts.task import Task

AT = "2026-01-30T12:00:00Z"


def task(*features: dict[str, object]) -> Task:
    """A regression."""
    target = {"name": "y", "kind": "regression"}
    return Task.model_validate({"name": "t", "window": "P1D", "features": features, "target": target})


def answered(**features: object) -> tuple[Row, dict[str, object]]:
    """A row and its answer."""
    row = Row(msgspec.json.encode({"event_id": "a", "at": AT, "features": features}))
    return row, {"at": AT, "prediction": 1.5, "expected_error": None, "valid_until": AT, "version": "3"}


@pytest.mark.parametrize("name", ["prediction", "version", "low", "valid_until"])
def test_a_feature_with_the_name_of_an_answer_is_not_overwritten(tmp_path: Path, name: str) -> None:
    named = task({"name": name, "kind": "number"})
    for suffix in ("csv", "parquet"):
        with pytest.raises(InvalidInput, match=f"{name}.* names a column of the answers.*ndjson"):
            AnswerFile(tmp_path / f"a.{suffix}", named, columns=None, has_ids=True)
    assert list(tmp_path.iterdir()) == []
    with AnswerFile(tmp_path / "a.ndjson", named, columns=None, has_ids=True) as file:
        file.resume(0)
        file.append([answered(**{name: 7})])
        file.finish()
    found = msgspec.json.decode((tmp_path / "a.ndjson").read_bytes())
    assert (found["features"], found["answer"]["version"]) == ({name: 7}, "3")


def test_parquet_takes_lines_as_long_as_a_row_may_be(tmp_path: Path) -> None:
    features: list[dict[str, object]] = [{"name": f"c{k}", "kind": "category"} for k in range(2)]
    values = {f"c{k}": "x" * 500_000 for k in range(2)}
    path = tmp_path / "a.parquet"
    with AnswerFile(path, task(*features), columns=None, has_ids=True) as file:
        file.resume(0)
        file.append([answered(**values)] * 5)
        file.finish()
    assert pq.read_table(path).column("c1").to_pylist() == ["x" * 500_000] * 5
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_a_disk_without_room_is_named_by_each_file(tmp_path: Path) -> None:
    full = Path("/dev/full")
    with pytest.raises(Unavailable, match="/dev/full cannot be written: No space left"):
        append_rejects(full, [(Row(b"{}"), "no")])
    (tmp_path / "a.ndjson.part").symlink_to(full)
    with (
        AnswerFile(tmp_path / "a.ndjson", task({"name": "x", "kind": "number"}), columns=None, has_ids=True) as file,
        pytest.raises(Unavailable, match=r"a\.ndjson\.part cannot be written: No space left"),
    ):
        file.append([answered(x=1)])


@pytest.mark.parametrize(("kind", "has_column"), [("category", True), ("number", False)])
def test_only_tasks_with_categories_have_a_column_of_unseen_ones(tmp_path: Path, kind: str, has_column: bool) -> None:
    with AnswerFile(tmp_path / "a.csv", task({"name": "x", "kind": kind}), columns=None, has_ids=True) as file:
        assert ("unseen" in file.columns) is has_column
