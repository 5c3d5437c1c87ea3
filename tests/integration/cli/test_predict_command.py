"""`morrow predict`: every row of a file is answered as /predict answers it, or put aside with the reason."""

import csv
import fcntl
import json
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.main import app
from tests.integration.api_process import Running, define_flights, running
from tests.integration.one_version import unnamed, without_ids

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "predict.md"
AT = datetime(2026, 1, 30, 12, tzinfo=UTC)


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    define_flights(engine)
    with running(database_url, tmp_path / "home") as api:
        yield api


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path


def predict(api: Running, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["predict", "flights", *map(str, arguments), "--url", api.url])


def answer_of(api: Running, at: str, **features: Any) -> dict[str, Any]:
    """What the API itself answers."""
    body = {"rows": [{"at": at, "features": features}]}
    answers: list[dict[str, Any]] = httpx.post(f"{api.url}/predict?task=flights", json=body).json()["answers"]
    return answers[0]


def test_csv_keeps_its_columns_and_refused_rows_go_to_a_file_of_their_own(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    file.write_text(
        "Flight No;at;Distance;carrier;wind\n"
        "a;2026-01-30 13:00;1400,5;UA;\n"
        "b;2026-01-30 13:00;far;UA;\n"
        "c;2030-01-01 00:00;300;DL;1,5\n"
        "d;2026-02-01 00:00;300;DL;1,5\n"
    )
    done = predict(api, file, "--out", out, "--timezone", "Europe/Berlin")
    assert done.exit_code == 3, done.output
    with out.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["Flight No"] for row in rows] == ["a", "d"]
    assert rows[0]["Distance"] == "1400,5"
    answer = answer_of(api, "2026-01-30T12:00:00Z", distance=1400.5, carrier="UA", wind=None)
    assert (rows[0]["prediction"], rows[0]["version"], rows[0]["valid_until"]) == (
        answer["prediction"],
        answer["version"],
        answer["valid_until"],
    )
    assert float(rows[0]["probability"]) == answer["probabilities"][answer["prediction"]]
    assert "2 rows answered by version 3, 2 refused" in done.output
    refused = (home / "answers.rejected.csv").read_text().splitlines()
    assert [line.split(";")[0] for line in refused] == ["Flight No", "b", "c"]
    assert "is beyond the validated horizon" in refused[2]
    assert sorted(path.name for path in home.iterdir() if "answers" in path.name) == [
        "answers.csv",
        "answers.rejected.csv",
    ]


def test_answers_without_an_expected_error_are_counted_with_the_reason(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    moments = ("2026-01-28T23:00:00Z", "2026-01-28T12:00:00Z", "2026-01-30T13:00:00Z")
    file.write_text("at,distance,carrier,wind\n" + "".join(f"{at},1400,UA,1\n" for at in moments))
    done = predict(api, file, "--out", out)
    assert done.exit_code == 0, done.output
    said = "2 answers have no expected error: the version has learned from rows of these moments"
    assert said in done.output
    with out.open() as stream:
        assert [bool(row["expected_error"]) for row in csv.DictReader(stream)] == [False, False, True]
    found = json.loads(predict(api, file, "--out", out, "--replace", "--json").stdout)
    assert found["without_expected_error"] == 2


def test_a_moment_that_needs_an_option_names_it_as_the_import_does(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    file.write_text("at,distance,carrier\n2/5/2026 9:00,1400,UA\n2026-01-30 13:00,1400,UA\n")
    told = predict(api, file, "--out", out)
    assert told.exit_code == 3
    assert "at: '2/5/2026 9:00' may name the day or the month first: say --dayfirst or --monthfirst" in told.output
    assert "at: has no offset: an offset such as Z or +02:00 is required, or --timezone Europe/Berlin" in told.output
    assert "Add the option that a reason names, and --replace, to the same command" in told.output
    assert "ask again:" not in told.output
    again = predict(api, file, "--out", out, "--monthfirst", "--timezone", "UTC", "--replace")
    assert "2 rows answered" in again.output


def test_parquet_has_typed_columns(home: Path, api: Running) -> None:
    file, out = home / "rows.parquet", home / "answers.parquet"
    moments = [AT + timedelta(minutes=k) for k in range(2500)]
    columns = {"event_id": list(range(2500)), "at": moments, "distance": [1400] * 2500, "carrier": ["UA"] * 2500}
    pq.write_table(pa.table(columns), file)
    done = predict(api, file, "--out", out)
    assert done.exit_code == 0, done.output
    found = pq.read_table(out)
    assert found.column("at").to_pylist() == moments
    assert found.column("event_id").to_pylist() == list(map(str, range(2500)))
    assert found.column("wind").null_count == 2500
    assert [
        str(found.schema.field(name).type) for name in ("at", "distance", "carrier", "prediction", "expected_error")
    ] == [
        "timestamp[us, tz=UTC]",
        "double",
        "string",
        "string",
        "double",
    ]
    at = moments[1700].isoformat()
    answer = answer_of(api, at, distance=1400, carrier="UA", wind=None)
    assert found.column("probability")[1700].as_py() == answer["probabilities"][answer["prediction"]]


def test_ndjson_holds_whole_answers(home: Path, api: Running) -> None:
    file, out = home / "rows.ndjson", home / "answers.ndjson"
    rows = [
        {"event_id": "a", "at": "2026-01-30T12:00:00Z", "features": {"distance": 3, "carrier": "UA"}, "label": "late"},
        {"event_id": "b", "features": {"distance": 3, "carrier": "UA"}},
    ]
    file.write_text("\n".join([*map(json.dumps, rows), "{broken"]) + "\n")
    done = predict(api, file, "--out", out)
    assert done.exit_code == 3, done.output
    (found,) = map(json.loads, out.read_text().splitlines())
    assert (found["event_id"], found["features"]) == ("a", {"distance": 3, "carrier": "UA"})
    assert unnamed(found["answer"]) == unnamed(answer_of(api, "2026-01-30T12:00:00Z", distance=3, carrier="UA"))
    assert "label" not in found
    assert "to ask about one moment, give --at" in done.output
    assert "is not JSON" in done.output


def test_all_rows_may_be_asked_about_at_one_moment(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.ndjson"
    file.write_text("distance,carrier\n1,UA\n2,DL\n")
    done = predict(api, file, "--out", out, "--at", "2026-02-01T00:00:00+01:00")
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["answer"]["at"] for one in found] == ["2026-01-31T23:00:00Z"] * 2
    assert [one["features"]["distance"] for one in found] == [1, 2]


def test_a_task_without_a_version_says_what_to_do(home: Path, api: Running) -> None:
    spec = {
        "window": "P1D",
        "features": [{"name": "x", "kind": "number"}],
        "target": {"name": "y", "kind": "regression"},
    }
    assert httpx.put(f"{api.url}/tasks/fresh", json=spec).is_success
    file = home / "rows.csv"
    file.write_text("at,x\n2026-01-01T00:00:00Z,1\n")
    done = CliRunner().invoke(app, ["predict", "fresh", str(file), "--out", str(home / "o.csv"), "--url", api.url])
    assert done.exit_code == 1
    assert "morrow cycle fresh" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "answers.txt"], ".csv, .ndjson and .parquet"),
        (["--out", "rows.csv"], "exists"),
        (["--out", "a.csv", "--at", "tomorrow"], "--at"),
        (["--out", "a.csv", "--coverage", "90"], "--coverage"),
        (["--out", "a.csv", "--map", "at=When"], "When"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, api: Running, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(home)
    (home / "rows.csv").write_text("at,distance,carrier\n2026-01-30T12:00:00Z,1,UA\n")
    done = predict(api, "rows.csv", *arguments)
    assert done.exit_code in (1, 2)
    assert said in " ".join(done.output.split())


def test_a_column_with_the_name_of_an_answer_is_refused(home: Path, api: Running) -> None:
    file = home / "rows.csv"
    file.write_text("at,distance,carrier,version\n2026-01-30T12:00:00Z,1,UA,7\n")
    done = predict(api, file, "--out", home / "a.csv")
    assert done.exit_code == 1
    assert "version: names a column of the answers" in " ".join(done.output.split())


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet"])
def test_a_command_that_was_killed_goes_on_and_ends_with_the_same_file(home: Path, api: Running, suffix: str) -> None:
    file, whole, out = home / "rows.csv", home / f"whole.{suffix}", home / f"answers.{suffix}"
    lines = [f"{(AT + timedelta(seconds=k)):%Y-%m-%dT%H:%M:%SZ},{k},UA" for k in range(30_000)]
    lines[17] = "2026-01-30T12:00:00Z,far,UA"
    file.write_text("\n".join(["at,distance,carrier", *lines]) + "\n")
    assert predict(api, file, "--out", whole).exit_code == 3
    command = [sys.executable, "-m", "cli.main", "predict", "flights", str(file), "--out", str(out), "--url", api.url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mark, deadline = home / f"answers.{suffix}.bookmark", time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert mark.exists()
    assert not out.exists()
    done = predict(api, file, "--out", out)
    assert done.exit_code == 3
    assert "Resuming after" in done.output
    if suffix == "parquet":
        assert pq.read_table(out).equals(pq.read_table(whole))
    else:
        assert without_ids(out.read_bytes()) == without_ids(whole.read_bytes())
    assert (home / "answers.rejected.csv").read_bytes() == (home / "whole.rejected.csv").read_bytes()
    assert not mark.exists()


HEADER = "at,distance,carrier,prediction,expected_error,valid_until,version,probability,prediction_set,unseen"


@pytest.mark.parametrize(
    ("name", "content", "header"),
    [
        ("rows.csv", "at,distance,carrier\n", HEADER),
        ("rows.csv", "at,distance,carrier\n" + "2030-01-01T00:00:00Z,1,UA\n" * 1200, HEADER),
        ("rows.ndjson", "", HEADER.replace("carrier,", "carrier,wind,").replace("at,", "event_id,at,", 1)),
    ],
    ids=["a header only", "every row refused", "no line"],
)
def test_a_file_without_answers_has_the_columns_of_one_with_answers(
    home: Path, api: Running, name: str, content: str, header: str
) -> None:
    file, out = home / name, home / "answers.csv"
    file.write_text(content)
    done = predict(api, file, "--out", out)
    assert done.exit_code == (3 if "2030" in content else 0), done.output
    assert out.read_text() == f"{header}\n"
    refused = home / "answers.rejected.csv"
    assert "2030" not in content or len(refused.read_text().splitlines()) == 1201


def test_refused_rows_that_were_corrected_by_hand_are_kept(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    file.write_text("at,distance,carrier\n2026-01-30T12:00:00Z,far,UA\n")
    assert predict(api, file, "--out", out).exit_code == 3
    refused, kept = home / "answers.rejected.csv", home / "answers.rejected-2.csv"
    corrected = refused.read_text().replace("far", "12")
    refused.write_text(corrected)
    again = predict(api, file, "--out", out, "--replace")
    assert f"{refused} was edited since it was written, and is kept as {kept}." in " ".join(again.output.split())
    assert (kept.read_text(), "far" in refused.read_text()) == (corrected, True)


def test_columns_of_one_name_are_both_kept(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    file.write_text("at,distance,carrier,note,note\n2026-01-30T12:00:00Z,1,UA,first,second\n")
    done = predict(api, file, "--out", out, "--drop", "note")
    assert done.exit_code == 0, done.output
    with out.open() as stream:
        names, cells = csv.reader(stream)
    assert names[:5] == ["at", "distance", "carrier", "note", "note"]
    assert cells[3:5] == ["first", "second"]


@pytest.mark.parametrize("name", ["answers.rejected.csv", "answers.csv.part", "answers.csv.bookmark"])
def test_the_file_to_read_is_not_written_over(home: Path, api: Running, name: str) -> None:
    file = home / name
    file.write_text("at,distance,carrier\n2026-01-30T12:00:00Z,1,UA\n")
    done = predict(api, file, "--out", home / "answers.csv", "--format", "csv")
    assert done.exit_code == 2
    assert "is the file to read: choose another name" in " ".join(done.output.split())
    assert file.read_text().endswith("1,UA\n")


def test_two_commands_do_not_write_one_file(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.csv"
    file.write_text("at,distance,carrier\n2026-01-30T12:00:00Z,1,UA\n")
    part = home / "answers.csv.part"
    with part.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = predict(api, file, "--out", out)
        assert done.exit_code == 1
        assert "Another command writes" in " ".join(done.output.split())
    assert predict(api, file, "--out", out).exit_code == 0
    assert not part.exists()


@pytest.mark.parametrize(("suffix", "most_bytes"), [("csv", 300_000), ("ndjson", 300_000), ("csv", 40_000)])
def test_a_full_disk_is_named_and_the_command_goes_on_with_room(
    home: Path, api: Running, suffix: str, most_bytes: int
) -> None:
    file, whole, out = home / "rows.csv", home / f"whole.{suffix}", home / f"answers.{suffix}"
    is_refused = most_bytes < 100_000  # then the file of refused rows is the one that does not fit
    year = 2030 if is_refused else 2026
    lines = [f"{year}-01-30T12:00:00Z,{k},UA" for k in range(6000)]
    file.write_text("\n".join(["at,distance,carrier", *lines]) + "\n")
    command = [sys.executable, "-m", "cli.main", "predict", "flights", str(file), "--out", str(out), "--url", api.url]
    said = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )
    assert said.returncode == 1, said.stderr
    assert "cannot be written: File too large" in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr
    assert not out.exists()
    for path in (whole, out):
        assert predict(api, file, "--out", path).exit_code == (3 if is_refused else 0)
    assert without_ids(out.read_bytes()) == without_ids(whole.read_bytes())
    if is_refused:
        assert (home / "answers.rejected.csv").read_bytes() == (home / "whole.rejected.csv").read_bytes()


def test_a_bookmark_that_outlived_its_file_is_not_used(home: Path, api: Running) -> None:
    file, out, mark = home / "rows.csv", home / "answers.csv", home / "answers.csv.bookmark"
    file.write_text("\n".join(["at,distance,carrier", *["2026-01-30T12:00:00Z,1,UA"] * 30_000]) + "\n")
    command = [sys.executable, "-m", "cli.main", "predict", "flights", str(file), "--out", str(out), "--url", api.url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.wait()
    left = mark.read_bytes()
    assert predict(api, file, "--out", out).exit_code == 0
    whole = out.read_bytes()
    mark.write_bytes(left)
    done = predict(api, file, "--out", out, "--replace")
    assert done.exit_code == 0, done.output
    assert "Resuming" not in done.output
    assert out.read_bytes() == whole
    assert not mark.exists()


def test_moments_of_every_spelling_are_written_as_they_were_answered(home: Path, api: Running) -> None:
    file, out = home / "rows.ndjson", home / "answers.parquet"
    given = ["2026-01-30T13:00:00+01:00", "2026-01-30T12:00:00.000000Z"]
    rows = [{"event_id": at, "at": at, "features": {"distance": 3, "carrier": "U" * 200}} for at in given]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    done = predict(api, file, "--out", out)
    assert done.exit_code == 0, done.output
    assert pq.read_table(out).column("at").to_pylist() == [AT, AT]


def test_the_moment_of_all_rows_stands_in_each(home: Path, api: Running) -> None:
    file, out = home / "rows.csv", home / "answers.parquet"
    file.write_text("distance,carrier\n1,UA\n")
    assert predict(api, file, "--out", out, "--at", "2026-01-30T13:00:00+01:00").exit_code == 0
    assert pq.read_table(out).column("at").to_pylist() == [AT]


def test_the_commands_of_the_page_run_as_printed(home: Path, monkeypatch: pytest.MonkeyPatch, api: Running) -> None:
    page = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rows, said = (text for kind, text in blocks if not kind)
    (home / "tomorrow.csv").write_text(rows)
    monkeypatch.chdir(home)
    outputs = []
    for command in (text for kind, text in blocks if kind == "sh"):
        done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--url", api.url])
        outputs.append(done.output)
    shown = [line.replace(" …", "").split(" in 0.")[0] for line in said.splitlines()]
    assert [line for line in shown if line not in outputs[0]] == []
    assert pq.read_table(home / "on-friday.parquet").num_rows == 3
