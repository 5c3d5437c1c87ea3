"""`morrow events import` as a user types it: three formats, rejects that can be mended, and going on after a kill."""

import bz2
import gzip
import json
import lzma
import os
import shlex
import signal
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.batches import ROWS_PER_BATCH
from cli.importing.bookmark import Bookmark, describe_source, name_bookmark, write_bookmark
from cli.importing.importer import NUM_CONNECTIONS
from tests.e2e.morrow_command import MORROW, say
from tests.unit.cli.test_infer_task import churn_export

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


ROW = "a,2026-11-01T12:00:00Z,high,4.5,north\n"


def test_a_pipe_is_read_and_leaves_nothing_behind_but_its_rejects(demand: str, tmp_path: Path) -> None:
    lines = HEADER + ROW + "b,2026-11-01T12:00:00Z,low,x,north\n"
    for content in (lines.encode(), gzip.compress(lines.encode())):
        done = subprocess.run(
            [*MORROW, "events", "import", "demand", "-", "--json"],
            input=content,
            env=os.environ | {"MORROW_URL": demand},
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (3, False), done.stderr
        assert json.loads(done.stdout)["rejected"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and path.suffix != ".log"] == [
        "stdin.rejected.csv"
    ]
    columns = {
        "event_id": ["c"],
        "at": ["2026-11-01T12:00:00Z"],
        "label": ["low"],
        "temperature": [1.0],
        "region": ["n"],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with (tmp_path / "x.parquet").open("rb") as stream:
        done = subprocess.run(
            [*MORROW, "events", "import", "demand", "/dev/stdin"],
            stdin=stream,
            env=os.environ | {"MORROW_URL": demand},
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
    assert (done.returncode, b"1 created" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip", "zst"])
def test_a_compressed_file_is_read_as_the_file_inside(demand: str, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"demand.csv.{suffix}"
    content = (HEADER + ROW).encode()
    if suffix == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("demand.csv", content)
    elif suffix == "zst":
        with pa.CompressedOutputStream(str(file), "zstd") as stream:
            stream.write(content)
    else:
        file.write_bytes({"gz": gzip, "bz2": bz2, "xz": lzma}[suffix].compress(content))
    assert counts(imported(demand, file, code=0)) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"\xd0\xcf\x11\xe0" + bytes(20), "Excel 97"),
        ("x.csv", b"SQLite format 3\x00", "SQLite"),
        ("x.csv", b"", "is empty"),
        ("x.csv.gz", gzip.compress((HEADER + ROW).encode(), mtime=0)[:-12], "is damaged gzip or ends too early"),
        ("x.parquet", b"", "is not Parquet"),
        ("x.ndjson", b'[\n{"event_id": "a"}\n]', "jq -c"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(
    demand: str, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    said = say(demand, "events", "import", "demand", str(tmp_path / name))
    assert (said.code, words in said.err) == (1, True), said.err
    assert [path.name for path in tmp_path.glob("*.bookmark")] == []


def test_one_bad_line_ends_no_import_and_the_counts_are_true(demand: str, tmp_path: Path) -> None:
    good = [ROW.replace("a,", f"a{number},", 1) for number in range(3000)]
    bad = ["x," + "y" * 200_000 + ",high,1,north\n", "   \n", 'z,"2026,high,1,north\n', "\x1a"]
    file = tmp_path / "demand.csv"
    file.write_text(HEADER + "".join([*good[:1500], *bad[:3], *good[1500:], bad[3]]))
    document = imported(demand, file, code=3)
    assert counts(document) == (3000, 0, 0, 2)
    assert len(Path(document["rejects"]).read_text().splitlines()) == 3
    assert counts(imported(demand, file, code=3)) == (0, 3000, 0, 2)


def test_reasons_are_counted_with_an_example_each(demand: str, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text(
        HEADER + "".join(f"a{k},2026-11-01T12:00:00Z,high,NA,north\n" for k in range(20)) + ROW.replace("Z", "")
    )
    document = imported(demand, file, code=3)
    assert [(one["count"], one["field"], one["example"]) for one in document["reasons"]] == [
        (20, "features.temperature", "a0"),
        (1, "at", "a"),
    ]
    said = say(demand, "events", "import", "demand", str(file))
    assert "20 rows, such as a0: features.temperature: is " in said.out
    assert "(it holds 'NA'); if that means a missing value: --missing NA" in said.out
    assert counts(imported(demand, file, "--missing", "NA", code=3)) == (0, 0, 0, 21)


def test_rejects_are_written_as_their_file_is_and_imported_with_the_same_options(demand: str, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    text = "event_id;when;label;Temperature;Région\na;01.11.2026 12:00;high;4,5;Zürich\nb;01.11.2026;low;x;Genève\n"
    file.write_bytes(text.replace("Région", "region").encode("cp1252"))
    options = ("--map", "at=when", "--timezone", "Europe/Berlin")
    document = imported(demand, file, *options, code=3)
    assert counts(document) == (1, 0, 0, 1)
    assert any("Windows-1252" in note and "semicolons" in note for note in document["notes"])
    rejects = Path(document["rejects"])
    assert rejects.read_bytes().decode("cp1252").splitlines()[0] == "event_id;when;label;Temperature;region;_reason"
    rejects.write_bytes(rejects.read_bytes().replace(b";x;", b";7,5;"))
    assert counts(imported(demand, rejects, *options, code=0)) == (1, 0, 0, 0)


def test_a_trial_checks_every_row_and_stores_none(demand: str, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text(HEADER + ROW + "b,2026-11-01T12:00:00Z,low,x,north\n")
    said = say(demand, "events", "import", "demand", str(file), "--dry-run")
    assert said.code == 3
    assert "1 row is valid and 1 is not. Nothing is stored." in said.out
    assert "b: features.temperature: is " in said.out
    assert "(it holds 'x')" in said.out
    assert httpx.get(f"{demand}/tasks/demand").json()["num_events"] == 0
    assert list(tmp_path.glob("demand.*")) == [file]
    assert httpx.get(f"{demand}/tasks/demand/imports").json()["imports"] == []


def test_a_mistaken_import_is_retracted_and_the_right_one_takes_its_ids(demand: str, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text(HEADER + ROW + ROW.replace("a,", "b,", 1))
    first = imported(demand, file, code=0)["import"]
    assert (
        f"morrow events retract demand --import {first}" not in say(demand, "events", "import", "demand", str(file)).out
    )
    refused = say(demand, "events", "retract", "demand", "--import", str(first), typed="n\n")
    assert refused.code == 1
    assert "is demand.csv of" in refused.err
    assert "Retract 2 events?" in refused.err
    done = say(demand, "events", "retract", "demand", "--import", str(first), "--yes")
    assert (done.code, f"2 events of import {first} retracted." in done.out) == (0, True)
    file.write_text((HEADER + ROW + ROW.replace("a,", "b,", 1)).replace("high", "low"))
    again = say(demand, "events", "import", "demand", str(file))
    assert "2 created" in again.out
    assert f"morrow events retract demand --import {first + 2}" in again.out
    assert "0 of 2" in say(demand, "events", "history", "demand").out


def test_a_file_in_the_form_of_the_version_that_answers_is_taken(demand: str, tmp_path: Path) -> None:
    wider = {**TASK, "features": [*TASK["features"], {"name": "wind", "kind": "number"}]}
    assert httpx.put(f"{demand}/tasks/demand", json=wider).status_code == 200
    file = tmp_path / "demand.csv"
    file.write_text(HEADER + ROW)
    said = say(demand, "events", "import", "demand", str(file))
    assert (said.code, "wind: is not a column of the file" in said.err) == (1, True)


def test_an_inferred_task_is_applied_and_its_file_imported_as_printed(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = churn_export(tmp_path / "churn export.csv")
    inferred = say(api, "task", "infer", str(file), "--timezone", "Europe/Berlin", "--json")
    assert inferred.code == 0, inferred.err
    facts = json.loads(inferred.out)
    assert "stored as revision 1" in say(api, "task", "apply", facts["file"]).out
    done = say(api, *shlex.split(facts["import"])[1:])
    assert (done.code, "600 created, 0 duplicates, 0 conflicts, 0 refused" in done.out) == (0, True), done.err
    assert httpx.get(f"{api}/tasks/churn_export").json()["num_events"] == 600


@pytest.mark.parametrize("loss", ["retracted", "deleted", "of another database"])
def test_an_import_whose_first_rows_are_gone_begins_again(demand: str, tmp_path: Path, loss: str) -> None:
    file = tmp_path / "demand.csv"
    file.write_text(HEADER + "".join(f"m-{number},2026-11-01T12:00:00Z,high,4.5,north\n" for number in range(5)))
    begun = httpx.post(f"{demand}/tasks/demand/imports", json={"source": file.name}).json()
    import_id, began_at = begun["id"], begun["at"]
    if loss == "retracted":
        retraction = httpx.post(f"{demand}/tasks/demand/imports/{import_id}/retract", json={"reason": "mistaken"})
        assert retraction.status_code == 200
    elif loss == "deleted":
        import_id += 1
    else:
        began_at = "2026-01-01T00:00:00Z"
    mark = Bookmark(describe_source(demand, "demand", file), 3, {"created": 3}, import_id=import_id, began_at=began_at)
    write_bookmark(name_bookmark(file, tmp_path), mark)
    said = say(demand, "events", "import", "demand", str(file), "--json")
    assert (said.code, "is retracted or gone: the file begins again" in said.err) == (0, True)
    document = json.loads(said.out)
    assert (document["num_before"], counts(document)) == (0, (5, 0, 0, 0))
