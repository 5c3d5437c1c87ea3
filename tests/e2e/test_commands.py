"""The commands that talk to an API, as a user types them, against the real API over a real database."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.demo.flights import read_task_file
from cli.local.stack import HOST, free_port
from contracts.clock import format_moment
from store.engine import make_engine
from store.tasks.catalog import Schema
from tests.e2e.morrow_command import MORROW, say
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.published_versions import define, note


def test_a_task_is_applied_shown_filled_and_retrained(api: str, tmp_path: Path) -> None:
    task = tmp_path / "flights.toml"
    task.write_text(read_task_file())
    assert "There is no task yet: `morrow task apply FILE.toml`" in say(api, "task", "show").out
    assert "stored as revision 1" in say(api, "task", "apply", str(task)).out
    assert "stored already as revision 1" in say(api, "task", "apply", str(task)).out

    file = tmp_path / "flights.csv"
    names = "sched_dep_minutes,weekday,carrier,origin,dest,distance,temp,dewp,humid,wind_speed,precip,pressure,visib"
    good = "2013-01-01T10:00:00Z,late,315,Tuesday,UA,EWR,IAH,1400,39.02,28.04,64.43,12.65,0.0,,10.0"
    naive = good.replace("Z,", ",", 1).replace(",1400,", ",nan,")
    file.write_text(f"event_id,at,label,{names}\na,{good}\nb,{good}\nc,{naive}\na,{good.replace('late', 'on_time')}\n")
    imported = say(api, "events", "import", "flights", str(file))
    assert imported.code == 3
    assert "2 created, 0 duplicates, 1 conflict, 1 refused" in imported.out
    assert "c: at: has no offset" in imported.out
    assert "features.distance" in imported.out
    assert "a: is stored with other content" in imported.out

    texts = ("weekday", "carrier", "origin", "dest")
    given = dict(zip(names.split(","), good.split(",")[2:], strict=True))
    features = {name: value if name in texts else float(value) for name, value in given.items() if value}
    event = {"event_id": "a", "at": "2013-01-01T10:00:00Z", "label": "on_time", "features": features}
    correction = tmp_path / "event.json"
    correction.write_text(json.dumps({**event, "features": {"carrier": "UA"}}))
    refused = say(api, "events", "correct", "flights", str(correction))
    assert refused.code == 1
    assert "features.distance" in refused.err
    correction.write_text(json.dumps(event))
    assert "a is corrected." in say(api, "events", "correct", "flights", str(correction)).out
    assert "a says so already." in say(api, "events", "correct", "flights", str(correction)).out

    erasing = ("events", "erase", "flights", "b", "--reason", "asked")
    assert say(api, *erasing, typed="n\n").code == 1
    erased = say(api, *erasing, typed="y\n")
    assert erased.code == 0
    assert "1 event erased in 1 revision, 0 refused rows and 0 logged answers; 0 were erased before." in erased.out
    ids = tmp_path / "ids.txt"
    ids.write_text("b\nc\nb\n\n")
    told = say(api, "events", "erase", "flights", "--file", str(ids), "--reason", "asked", "--yes", "--json")
    assert told.code == 3
    facts = json.loads(told.out)
    assert (facts["num_erased_before"], facts["num_rejected"], facts["unknown"]) == (1, 1, ["c"])
    (tmp_path / "again.csv").write_text(f"event_id,at,label,{names}\nb,{good}\n")
    again = say(api, "events", "import", "flights", str(tmp_path / "again.csv"))
    assert (again.code, again.out.splitlines()[0]) == (
        0,
        "0 created, 0 duplicates, 0 conflicts, 0 refused, 1 erased",
    )

    assert "requested" in say(api, "cycle", "flights", "--as-of", "2013-01-08T05:00:00Z", "--no-wait").out
    shown = say(api, "task", "show", "flights").out
    assert "revision 1: 1 event\n" in shown
    assert "State     without model" in shown
    assert "Champion  none yet" in shown
    assert "2013-01-08T05:00:00Z" in shown
    assert "flights" in say(api, "task", "show").out


def test_facts_are_printed_as_the_api_tells_them(api: str, tmp_path: Path) -> None:
    task = tmp_path / "flights.toml"
    task.write_text(read_task_file())
    assert json.loads(say(api, "task", "apply", str(task), "--json").out)["changed"]
    asked = json.loads(say(api, "cycle", "flights", "--as-of", "2013-01-08T05:00:00Z", "--no-wait", "--json").out)
    assert (asked["cutoff"], asked["state"]) == ("2013-01-08T05:00:00Z", "requested")
    listed = json.loads(say(api, "task", "show", "--json").out)["tasks"]
    assert [one["task"] for one in listed] == ["flights"]
    shown = json.loads(say(api, "task", "show", "flights", "--json").out)
    assert [cycle["id"] for cycle in shown["cycles"]] == [asked["id"]]
    assert shown["missing_windows"] > 0
    words = f"without model, needs {shown['missing_windows']} more windows"
    assert words in say(api, "task", "show").out
    assert f"Needs     {shown['missing_windows']} more windows" in say(api, "task", "show", "flights").out


def test_refusals_are_sentences_and_exit_with_1(api: str, tmp_path: Path) -> None:
    unknown = say(api, "cycle", "nothing")
    assert unknown.code == 1
    assert "There is no task named 'nothing'" in unknown.err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('name = "wrong"\nwindow = "P7D"\nfeatures = []\n[target]\nname = "y"\nkind = "clustering"\n')
    refused = say(api, "task", "apply", str(wrong))
    assert refused.code == 1
    assert "target.kind" in refused.err
    wrong.write_text("name = ")
    assert "is not TOML" in say(api, "task", "apply", str(wrong)).err


def test_a_word_that_cannot_be_had_is_said(api: str, tmp_path: Path) -> None:
    task = tmp_path / "flights.toml"
    task.write_text(read_task_file())
    say(api, "task", "apply", str(task))
    rolled_back = say(api, "rollback", "flights", "--reason", "it mispredicts")
    assert rolled_back.code == 1
    assert "No registry is configured" in rolled_back.err
    overridden = say(api, "override", "flights", "--reason", "a strike", "--cycle", "999")
    assert overridden.code == 1
    assert "has no cycle 999" in overridden.err
    assert say(api, "override", "flights").code == 2


def test_a_task_is_paused_archived_renamed_and_deleted_with_a_question_that_names_the_counts(
    api: str, tmp_path: Path
) -> None:
    task = tmp_path / "flights.toml"
    task.write_text(read_task_file())
    say(api, "task", "apply", str(task))
    paused = say(api, "task", "pause", "flights", "--reason", "new sensors", "--actor", "Ada")
    assert paused.out.startswith("flights is paused. No cycle begins until the task is resumed")
    assert "State     paused, without model" in say(api, "task", "show", "flights").out
    refused = say(api, "cycle", "flights", "--no-wait")
    assert (refused.code, "`morrow task resume flights`" in refused.err) == (1, True)
    assert say(api, "task", "resume", "flights").code == 0
    assert "is active, so there is nothing to resume" in say(api, "task", "resume", "flights").err

    assert say(api, "task", "archive", "flights").out.startswith("flights is archived.")
    assert "There is no task yet" in say(api, "task", "show").out
    assert "archived" in say(api, "task", "show", "--archived").out
    assert json.loads(say(api, "task", "unarchive", "flights", "--json").out)["action"] == "unarchive"
    assert say(api, "cycle", "flights", "--as-of", "2013-01-08T05:00:00Z", "--no-wait").code == 0

    assert say(api, "task", "rename", "flights", "delays").out.startswith("flights is now delays. ")
    assert "use the name 'delays' instead" in say(api, "task", "show", "flights").err
    asked = say(api, "task", "delete", "delays", typed="n\n")
    assert asked.code == 1
    assert "Delete delays for ever, with 0 events, 0 refused rows, 1 cycle and 0 versions?" in asked.err
    assert say(api, "task", "show", "delays").code == 0
    deleted = say(api, "task", "delete", "delays", typed="y\n")
    assert deleted.code == 0
    assert "delays is deleted, with 0 events, 0 refused rows, 1 cycle and 0 versions." in deleted.out
    assert "was deleted at" in say(api, "task", "delete", "delays", "--yes").err
    assert "is still being deleted or renamed" in say(api, "task", "apply", str(task)).err


@pytest.fixture
def released(database_url: str, tmp_path: Path) -> Iterator[Schema]:
    """A task whose released version 7 is in the API's home before the API starts."""
    engine = make_engine(database_url)
    schema = define(engine)
    place_version(tmp_path / "home", "7", task=schema.task.name)
    note(engine, schema, "7", "release")
    yield schema
    engine.dispose()


def test_an_override_is_said_once_the_api_answers_so(released: Schema, api: str) -> None:
    bound, name = format_moment(CUTOFF + 3 * WEEK), released.task.name
    said = say(api, "override", name, "--reason", "a strike", "--valid-until", bound)
    champion = httpx.get(f"{api}/tasks/{name}").json()["champion"]
    assert said.out == f"Version 7 of {name} is valid until {bound}.\n"
    assert (champion["version"], champion["valid_until"]) == ("7", bound)
    assert f"until {bound}, by override of admin" in say(api, "task", "show", name).out


def test_a_file_of_many_events_is_no_correction(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text("[]")
    said = say(f"http://{HOST}:1", "events", "correct", "flights", str(file))
    assert said.code == 1
    assert said.err.startswith(
        f"{file}: is not one event, a JSON object: run morrow events show flights ID > event.json"
    )


def test_an_absent_api_is_said() -> None:
    said = say(f"http://{HOST}:{free_port()}", "task", "show")
    assert said.code == 1
    assert "does not answer" in said.err


def test_settings_that_cannot_be_read_are_named() -> None:
    done = subprocess.run(
        [*MORROW, "serve"], env=os.environ | {"MORROW_PORT": "many"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "MORROW_PORT" in done.stderr
    assert "Traceback" not in done.stderr
