"""`morrow events import` as a user types it: three formats, rejects that can be mended, and going on after a kill."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.importing.bookmark import Bookmark
from cli.importing.importer import NUM_CONNECTIONS, ROWS_PER_BATCH
from tests.e2e.morrow_command import MORROW, say

TASK = {
    "schedule": "manual",
    "window": "P1D",
    "features": [{"name": "temperature", "kind": "number"}, {"name": "region", "kind": "category"}],
    "target": {"name": "demand", "kind": "classification"},
}
HEADER = "event_id,at,label,temperature,region\n"


@pytest.fixture
def demand(api: str) -> str:
    """The address of an API that has a task `demand`."""
    assert httpx.put(f"{api}/tasks/demand", json=TASK).status_code == 201
    return api


def imported(api: str, file: Path, *options: str, code: int) -> dict[str, Any]:
    said = say(api, "events", "import", "demand", str(file), "--json", *options)
    assert said.code == code, said.err
    document: dict[str, Any] = json.loads(said.out)
    return document


def counts(document: dict[str, Any]) -> tuple[int, ...]:
    return tuple(document[name] for name in ("created", "duplicates", "conflicts", "rejected"))


def test_rejected_rows_are_mended_and_imported_in_turn(demand: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "demand.csv", tmp_path / "out"
    folder.mkdir()
    lines = [
        "a,2026-11-01T12:00:00Z,high,4.5,north",
        "b,2026-11-01T12:00:00,low,4,north",
        "c,2026-11-01T12:00:00Z,low,x,",
    ]
    file.write_text(HEADER + "\n".join(lines) + "\n")
    document = imported(demand, file, "--folder", str(folder), code=3)
    assert counts(document) == (1, 0, 0, 2)
    rejects = Path(document["rejects"])
    assert [path.name for path in folder.iterdir()] == ["demand.rejected.csv"]
    heading, first, second = rejects.read_text().splitlines()
    assert heading == "event_id,at,label,temperature,region,_reason"
    assert "at: has no offset" in first
    assert "features.temperature" in second
    assert "features.region" in second
    mended = rejects.read_text().replace("T12:00:00,", "T12:00:00Z,").replace("low,x,,", "low,3,south,")
    rejects.write_text(mended)
    again = imported(demand, rejects, code=0)
    assert (counts(again), again["rejects"]) == ((2, 0, 0, 0), None)
    assert counts(imported(demand, file, "--folder", str(folder), code=3)) == (0, 1, 0, 2)


def test_one_bad_line_of_ndjson_does_not_hold_up_the_others(demand: str, tmp_path: Path) -> None:
    event = {"at": "2026-11-01T12:00:00Z", "features": {"temperature": 4.5, "region": "north"}, "label": "high"}
    lines = [json.dumps({"event_id": f"m-{number}", **event}) for number in range(1000)]
    lines[500] = '{"event_id": "m-500", '
    file = tmp_path / "demand.ndjson"
    file.write_text("\n".join(lines))
    document = imported(demand, file, code=3)
    assert counts(document) == (999, 0, 0, 1)
    (reject,) = Path(document["rejects"]).read_text().splitlines()
    assert json.loads(reject)["_line"] == lines[500].strip()


def test_parquet_is_imported_by_its_suffix_or_by_name(demand: str, tmp_path: Path) -> None:
    columns = {
        "event_id": ["a", "b"],
        "at": ["2026-11-01T12:00:00Z"] * 2,
        "label": [1, 0],
        "temperature": [4.5, None],
        "region": ["north", "south"],
    }
    pq.write_table(pa.table(columns), tmp_path / "demand.parquet")
    document = imported(demand, tmp_path / "demand.parquet", code=3)
    assert counts(document) == (1, 0, 0, 1)
    (reject,) = Path(document["rejects"]).read_text().splitlines()
    assert "features.temperature" in json.loads(reject)["_reason"]
    (tmp_path / "demand.parquet").rename(tmp_path / "demand.data")
    unnamed = say(demand, "events", "import", "demand", str(tmp_path / "demand.data"))
    assert (unnamed.code, "name its --format" in unnamed.err) == (1, True)
    assert counts(imported(demand, tmp_path / "demand.data", "--format", "parquet", code=3)) == (0, 1, 0, 1)


def test_a_file_without_a_needed_column_leaves_nothing_behind(demand: str, tmp_path: Path) -> None:
    file = tmp_path / "lacking" / "demand.csv"
    file.parent.mkdir()
    file.write_text("event_id,at\n")
    said = say(demand, "events", "import", "demand", str(file))
    assert (said.code, "label: is not a column of the file" in said.err) == (1, True)
    assert "to resume" not in said.err
    assert list(file.parent.iterdir()) == [file]


def test_an_import_that_is_killed_goes_on_where_it_was(demand: str, tmp_path: Path) -> None:
    num_rows, file = 60_000, tmp_path / "demand.csv"
    rows = (
        f"m-{number},2026-11-01T12:00:00{'Z' if number % 1000 else ''},high,4.5,north\n" for number in range(num_rows)
    )
    file.write_text(HEADER + "".join(rows))
    process = subprocess.Popen(
        [*MORROW, "events", "import", "demand", str(file)],
        env=os.environ | {"MORROW_URL": demand},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    bookmark = tmp_path / "demand.csv.bookmark"
    deadline = time.monotonic() + 120
    while not bookmark.exists() or json.loads(bookmark.read_text())["num_rows"] < 5000:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = msgspec.json.decode(bookmark.read_bytes(), type=Bookmark)
    document = imported(demand, file, code=3)
    assert document["num_before"] == before.num_rows
    assert document["num_rows"] == num_rows
    assert document["rejected"] == num_rows // 1000
    assert document["created"] + document["duplicates"] == num_rows - num_rows // 1000
    # Sent twice were only those that were under way when the kill came.
    assert document["duplicates"] <= (NUM_CONNECTIONS + 1) * ROWS_PER_BATCH
    assert len(Path(document["rejects"]).read_text().splitlines()) == 1 + num_rows // 1000
    assert not bookmark.exists()
    assert httpx.get(f"{demand}/tasks/demand").json()["num_events"] == num_rows - num_rows // 1000
