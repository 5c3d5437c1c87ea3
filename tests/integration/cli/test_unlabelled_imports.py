"""`morrow events import --unlabelled`: rows of any format whose label is not known yet; without it they are refused."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from morrow import Client, Event, Label, to_events
from typer.testing import CliRunner, Result

from cli.main import app
from tests.e2e.printed import run_blocks
from tests.integration.api_process import Running
from tests.integration.cli.test_imported_again import words

AT = "2026-01-05T11:00:00Z"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "labels.md"
ROWS = [("a", "late"), ("b", None), ("c", None)]


def write_csv(file: Path) -> None:
    rows = [f"{event_id},{AT},1,UA,{label or ''}" for event_id, label in ROWS]
    file.write_text("\n".join(["event_id,at,distance,carrier,label", *rows]) + "\n")


def write_parquet(file: Path) -> None:
    ids, labels = zip(*ROWS, strict=True)
    columns = {"event_id": ids, "at": [AT] * 3, "distance": [1.0] * 3, "carrier": ["UA"] * 3, "label": labels}
    pq.write_table(pa.table(columns), file)


def write_ndjson(file: Path) -> None:
    rows = [
        {"event_id": event_id, "at": AT, "features": {"distance": 1, "carrier": "UA"}}
        | ({} if label is None else {"label": label})
        for event_id, label in ROWS
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_flat(file: Path) -> None:
    rows = [{"event_id": one, "at": AT, "distance": 1, "carrier": "UA", "label": label} for one, label in ROWS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


FORMATS = {"rows.csv": write_csv, "rows.parquet": write_parquet, "rows.ndjson": write_ndjson, "flat.ndjson": write_flat}


@pytest.fixture
def say(api: Running) -> Callable[..., Result]:
    def run(*given: str) -> Result:
        return CliRunner().invoke(app, [*given, "--url", api.url])

    return run


@pytest.mark.parametrize("name", FORMATS)
def test_rows_without_a_label_are_kept_if_asked_for(say: Callable[..., Result], tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    FORMATS[name](file)
    refused = say("events", "import", "flights", str(file), "--json")
    assert refused.exit_code == 3, refused.output
    facts = json.loads(refused.stdout)
    assert (facts["created"], facts["rejected"], "unlabelled" in facts) == (1, 2, False)
    assert {one["field"] for one in facts["reasons"]} == {"label"}
    assert say("events", "import", "flights", str(file), "--unlabelled", "--dry-run").exit_code == 0
    kept = say("events", "import", "flights", str(file), "--unlabelled", "--again", "--json")
    assert kept.exit_code == 0, kept.output
    facts = json.loads(kept.stdout)
    assert (facts["created"], facts["duplicates"], facts["unlabelled"], facts["rejected"]) == (0, 1, 2, 0)
    shown = words(say("task", "show", "flights"))
    assert "flights, revision 1: 1 event, 2 without a label" in shown
    again = say("events", "import", "flights", str(file), "--unlabelled", "--again", "--json")
    assert json.loads(again.stdout)["duplicates"] == 3


def test_a_file_without_a_column_of_labels_is_imported_if_asked_for(say: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "inputs.csv"
    file.write_text(f"event_id,at,distance,carrier\na,{AT},1,UA\n")
    assert "label: is not a column of the file" in words(say("events", "import", "flights", str(file)))
    kept = say("events", "import", "flights", str(file), "--unlabelled")
    assert (kept.exit_code, "1 unlabelled" in words(kept)) == (0, True), kept.output
    assert "If it was a mistake: morrow events retract flights --import 1" in words(kept)


def test_inputs_need_ids_that_labels_do_not_change(say: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "inputs.csv"
    file.write_text(f"at,distance,carrier,label\n{AT},1,UA,\n")
    refused = say("events", "import", "flights", str(file), "--unlabelled")
    assert "--unlabelled: needs ids that stay when labels come" in words(refused)
    assert say("events", "import", "flights", str(file), "--unlabelled", "--id-from", "at,carrier").exit_code == 0


def test_the_client_sends_events_without_labels_and_completes_them(api: Running) -> None:
    rows = [
        {"event_id": "a", "at": AT, "distance": 1, "carrier": "UA", "label": "late"},
        {"event_id": "b", "at": AT, "distance": 1, "carrier": "UA", "label": float("nan")},
    ]
    with Client(api.url) as client:
        assert client.upload("flights", to_events(rows)).refused[0].event_id == "b"
        report = client.upload("flights", to_events(rows, unlabelled=True))
        assert (report.duplicates, report.unlabelled, list(report.refused)) == (1, 1, [])
        found = client.event("flights", "b")
        assert (found.revision, found.event.label) == (0, Event(event_id="b", at=found.event.at, features={}).label)
        labelled = Event(event_id="b", at=found.event.at, features=found.event.features, label="late")
        assert client.correct("flights", labelled, revision=found.revision)
        assert (client.event("flights", "b").revision, client.event("flights", "b").event.label) == (1, "late")


def test_the_client_sends_labels_apart_from_their_events(api: Running) -> None:
    at = datetime(2026, 1, 5, 11, tzinfo=UTC)
    with Client(api.url) as client:
        client.upload("flights", [Event(event_id="a", at=at, features={"distance": 1, "carrier": "UA"})])
        labels = [Label(event_id=one, label=label) for one, label in (("a", "late"), ("b", "late"), ("b", "never"))]
        report = client.labels("flights", labels)
        assert (report.joined, report.waiting, [one.status for one in report.refused]) == (1, 1, ["rejected"])
        assert client.labels("flights", labels[:2]).duplicates == 2
        assert client.event("flights", "a").event.label == "late"


def test_the_calls_of_the_page_answer_as_printed(api: Running, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    printed = run_blocks(PAGE, api.port, tmp_path, folder, 60)
    shown = [block.partition("```json\n")[2].partition("\n```")[0] for block in PAGE.read_text().split("```sh\n")[1:]]
    assert [answer.strip() for answer in printed] == shown
