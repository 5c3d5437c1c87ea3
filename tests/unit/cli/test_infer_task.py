"""`morrow task infer`: what it guesses from files as people have them, and that an import takes the guess."""

import json
import random
import shlex
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cli.inferring.guess import Said
from cli.inferring.infer import Inferred, infer
from cli.main import app
from cli.reading.options import Options
from contracts.errors import InvalidInput
from contracts.task import Task

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def infer_file(file: Path, options: Options = Options(), **given: Any) -> Inferred:  # noqa: B008 it is frozen
    name = given.pop("name", None)
    return infer(file, format=None, name=name, said=Said(**given), options=options, now=NOW)


def spec_of(inferred: Inferred) -> dict[str, Any]:
    """The features of an inferred task by name; the whole text is a valid task."""
    task = Task.model_validate(tomllib.loads(inferred.text))
    return {feature.name: (feature.kind, feature.optional) for feature in task.features}


def churn_export(file: Path) -> Path:
    """A classification with local dates, blanks, currency signs, an index column and semicolons, in Windows-1252."""
    rng = random.Random(3)  # noqa: S311 rows, no secrets
    lines = ["; Kunden-Nr;Datum;Vertrag;Preis (€);Laufzeit;Größe;Support?;Bemerkung;Land;Gekündigt"]
    for k in range(600):
        at = datetime(2024, 1, 1) + timedelta(minutes=rng.randrange(500_000))  # noqa: DTZ001 files hold local times
        price = "" if k % 20 == 0 else f"{rng.randrange(1, 3)}.{rng.randrange(100, 999)},{rng.randrange(10, 99)} €"
        cells = (
            100_000 + k,
            f"{at:%d.%m.%Y %H:%M}",
            rng.choice(["Basis", "Flex"]),
            price,
            rng.choice(["12", "24", "NA"]),
        )
        more = (rng.choice(["S", "M"]), rng.choice(["Yes", "No"]), f"Anruf {k}" if k % 9 == 0 else "", "DE")
        lines.append(";".join(map(str, (k, *cells, *more, rng.choice(["Ja", "Nein"])))))
    file.write_bytes("\r\n".join(lines).encode("cp1252"))
    return file


def hourly_rentals(file: Path) -> Path:
    """A year of hourly rows, whose date and hour are in two columns."""
    lines = ["instant,dteday,hr,weathersit,workingday,temp,cnt"]
    day = datetime(2011, 1, 1, tzinfo=UTC)
    for k in range(365 * 24):
        at = day + timedelta(hours=k)
        lines.append(f"{k + 1},{at:%Y-%m-%d},{at.hour},{k % 3 + 1},{k % 2},{k % 50 / 50},{k % 300}")
    file.write_text("\n".join(lines))
    return file


def test_a_messy_export_becomes_a_task_that_takes_every_row(tmp_path: Path) -> None:
    inferred = infer_file(churn_export(tmp_path / "churn export.csv"), Options(timezone="Europe/Berlin"))
    assert spec_of(inferred) == {
        "vertrag": ("category", False),
        "preis": ("number", True),
        "laufzeit": ("integer", True),
        "grosse": ("category", False),
        "support": ("boolean", False),
    }
    spec = tomllib.loads(inferred.text)
    assert (inferred.name, spec["schedule"]) == ("churn_export", "manual")
    assert spec["target"] == {"name": "gekundigt", "kind": "classification", "classes": ["Ja", "Nein"]}
    assert inferred.notes[0] == "Of 600 rows 600 are valid and 0 would be refused."
    words = shlex.split(inferred.import_command)
    assert words[:4] == ["morrow", "events", "import", "churn_export"]
    assert "at=Datum" in words
    assert "event_id=Kunden-Nr" in words
    assert words[words.index("--missing") + 1] == "NA"
    for reason in ("Bemerkung: nearly every row", "Land: the same in every row: DE", "Ids are in Kunden-Nr."):
        assert reason in inferred.text
    assert "missing in 30 rows (5.0 %)" in inferred.text
    assert inferred.import_command in inferred.text


def test_a_year_of_hourly_rows_becomes_a_regression_in_weeks(tmp_path: Path) -> None:
    inferred = infer_file(hourly_rentals(tmp_path / "hour.csv"))
    spec = tomllib.loads(inferred.text)
    assert (spec["window"], spec["target"]["name"], spec["target"]["kind"]) == ("P7D", "cnt", "regression")
    assert spec_of(inferred) == {
        "weathersit": ("category", False),
        "workingday": ("integer", False),
        "temp": ("number", False),
    }
    assert "--map at=dteday+hr" in inferred.import_command
    assert "about 168 rows a window, and 52 windows in the file" in inferred.text
    assert inferred.notes[0] == "Of 8,760 rows 8,760 are valid and 0 would be refused."


def test_the_hour_of_the_day_is_a_category_and_an_amount_of_hours_is_not(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    day = datetime(2011, 1, 1, tzinfo=UTC)
    lines = ["when,Hour,hours_of_sun,temp,rides"]
    for k in range(2400):
        at = day + timedelta(hours=k)
        lines.append(f"{at:%Y-%m-%dT%H:%M:%SZ},{at.hour},{k % 12},{k % 50 / 50},{k % 300}")
    file.write_text("\n".join(lines))
    kinds = spec_of(infer_file(file))
    assert kinds["hour"] == ("category", False)
    assert kinds["hours_of_sun"] == ("integer", False)


@pytest.mark.parametrize(("label", "is_offered"), [("3", True), ("-3", False), ("3.5", False)])
def test_a_lower_bound_is_offered_for_labels_that_may_be_counts(tmp_path: Path, label: str, is_offered: bool) -> None:
    file = tmp_path / "counts.csv"
    day = datetime(2011, 1, 1, tzinfo=UTC)
    rows = [f"{day + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{k % 50 / 50},{k % 30}" for k in range(1200)]
    file.write_text("\n".join(["when,temp,rides", *rows, f"2011-03-01T00:00:00Z,0.5,{label}"]))
    inferred = infer_file(file)
    assert ("\n# minimum = 0" in inferred.text) is is_offered
    set_minimum = inferred.text.replace("# minimum = 0", "minimum = 0")
    assert (Task.model_validate(tomllib.loads(set_minimum)).target.minimum == 0) is is_offered


@pytest.mark.parametrize(("every", "loss"), [(3, "gaussian"), (1, "absolute")])
def test_means_are_asked_for_where_one_label_is_the_median(tmp_path: Path, every: int, loss: str) -> None:
    file = tmp_path / "sales.csv"
    day = datetime(2011, 1, 1, tzinfo=UTC)
    labels = [k % 40 if k % every == 0 else 0 for k in range(1200)]
    rows = [f"{day + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ},{k % 50 / 50},{label}" for k, label in enumerate(labels)]
    file.write_text("\n".join(["when,temp,sales", *rows]))
    inferred = infer_file(file)
    training = Task.model_validate(tomllib.loads(inferred.text)).training
    assert (training.regression_loss, training.experts) == (loss, "auto")
    assert ("of labels are 0, and so would most answers be" in inferred.text) is (loss == "gaussian")


def test_columns_that_give_the_label_away_are_named(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    rows = [(k % 7, k % 11, k % 5) for k in range(100)]
    lines = [f"2025-01-{k % 28 + 1:02}T00:00:00Z,{a},{b},{c},{a + b}" for k, (a, b, c) in enumerate(rows)]
    file.write_text("at,casual,registered,hour_of_day,cnt\n" + "\n".join(lines))
    text = infer_file(file).text
    assert "# Note: casual and registered add up to cnt: drop them unless" in text
    assert text.count("add up to") == 1


def test_parquet_is_inferred_from_its_types(tmp_path: Path) -> None:
    file = tmp_path / "trips.parquet"
    at = [datetime(2025, 12, 1, tzinfo=UTC) + timedelta(hours=k) for k in range(500)]
    columns = {
        "pickup": pa.array(at, pa.timestamp("us", "UTC")),
        "km": [k / 7 for k in range(500)],
        "rain": [k % 2 == 0 for k in range(500)],
        "tags": [["a"]] * 500,
        "minutes": [k % 90 for k in range(500)],
    }
    pq.write_table(pa.table(columns), file)
    inferred = infer_file(file, label="minutes")
    assert spec_of(inferred) == {"km": ("number", False), "rain": ("boolean", False)}
    assert "tags: is of the type list<" in inferred.text
    assert "--timezone" not in inferred.import_command
    assert inferred.notes[0].startswith("Of 500 rows 500 are valid")


def test_names_that_collide_or_are_taken_are_mapped(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    lines = [f"2025-01-{k % 28 + 1:02}T00:00:00Z,{k % 7},{k % 5},{k % 3},{'ab'[k % 2]}" for k in range(200)]
    file.write_text("when,Temp C,temp-c,coverage,label\n" + "\n".join(lines))
    inferred = infer_file(file)
    assert list(spec_of(inferred)) == ["temp_c", "temp_c_2", "coverage_"]
    assert inferred.notes[0] == "Of 200 rows 200 are valid and 0 would be refused."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "--at: no column holds moments, and every event needs one"),
        ("at,label\n", "has no rows"),
        ("at\n2025-01-01T00:00:00Z\n", "--label: no column can be the label"),
        ("at,x,label\n2025-01-01 CET,1,2\n2025-07-01 CET,2,3\n", "at: .* names its zone CET"),
        ("at,x,label\n01/02/2025,1,2\n02/03/2025,2,3\n", "--dayfirst or --monthfirst"),
    ],
)
def test_what_cannot_be_guessed_is_said(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        infer_file(file)


def test_dates_of_two_digits_get_a_form(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("day,x,y\n" + "\n".join(f"{k % 28 + 1:02}.03.25,{k % 40}.5,{k % 2}" for k in range(100)))
    inferred = infer_file(file)
    assert "--at-format %d.%m.%y" in inferred.import_command
    assert inferred.notes[0] == "Of 100 rows 100 are valid and 0 would be refused."


def test_the_command_writes_a_file_and_says_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = churn_export(tmp_path / "churn.csv")
    run = CliRunner().invoke
    done = run(app, ["task", "infer", str(file)])
    assert done.exit_code == 0, done.output
    assert "morrow task apply churn.toml" in done.output
    assert f"morrow events import churn {file}" in done.output
    again = run(app, ["task", "infer", str(file)])
    assert again.exit_code == 1
    assert "churn.toml: exists" in again.output
    told = json.loads(run(app, ["task", "infer", str(file), "--force", "--json"]).output)
    assert (told["task"], told["file"]) == ("churn", "churn.toml")
    shown = run(app, ["task", "infer", str(file), "--out", "-"])
    assert shown.output == (tmp_path / "churn.toml").read_text()


def test_dates_of_two_digit_years_that_show_no_order_are_not_guessed(tmp_path: Path) -> None:
    def write(separator: str) -> Path:
        file = tmp_path / "short.csv"
        days = [separator.join((f"{1 + k % 12:02}", f"{1 + (k * 7) % 12:02}", "26")) for k in range(300)]
        file.write_text("at,x,label\n" + "".join(f"{day} 10:00,{k}.5,{'ab'[k % 2]}\n" for k, day in enumerate(days)))
        return file

    for separator in "/-":
        with pytest.raises(InvalidInput, match="has a year of two digits: give its form"):
            infer_file(write(separator))
    assert any(
        "taken to have the form %d.%m.%y %H:%M: if that is wrong" in note for note in infer_file(write(".")).notes
    )
    by_option = infer_file(write("/"), options=Options(day_first=False, timezone="UTC"))
    assert "--at-format '%m/%d/%y %H:%M'" in by_option.import_command


def test_short_dates_with_am_and_pm_get_their_format_and_no_order_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "short.csv"
    days = [f"{1 + k % 12}/{1 + k % 28}/26 {1 + k % 12}:05 {'AP'[k % 2]}M" for k in range(300)]
    file.write_text("at;x;label\n" + "".join(f"{day};{k},5;{'ab'[k % 2]}\n" for k, day in enumerate(days)))
    found = infer_file(file, options=Options(timezone="UTC"))
    assert "--at-format '%m/%d/%y %I:%M %p'" in found.import_command
    assert "--monthfirst" not in found.import_command
    given = infer_file(file, options=Options(timezone="UTC", at_format="%m/%d/%y %I:%M %p"))
    assert "--dayfirst" not in given.import_command
    assert not any("--monthfirst" in note or "--dayfirst" in note for note in given.notes)


def test_a_header_with_line_breaks_is_read_with_blanks(tmp_path: Path) -> None:
    file = tmp_path / "broken.csv"
    rows = "".join(f"2026-01-{1 + k % 28:02}T{k % 24:02}:00:00Z,{k}.5,{'ab'[k % 2]}\n" for k in range(100))
    file.write_text(f'at,"air\ntemp (C)",label\n{rows}')
    assert 'name = "air_temp_c"' in infer_file(file).text


def test_decimal_milliseconds_are_moments(tmp_path: Path) -> None:
    file = tmp_path / "epochs.csv"
    rows = "".join(f"{1767225600000 + k * 3_600_000}.0,{k}.5,{'ab'[k % 2]}\n" for k in range(100))
    file.write_text(f"ts,x,label\n{rows}")
    assert "from 2026-01-01T00:00:00+00:00" in infer_file(file).text


def test_no_label_is_told_with_the_reason_of_each_column(tmp_path: Path) -> None:
    file = tmp_path / "counted.csv"
    file.write_text("at,n\n" + "".join(f"2026-01-{1 + k % 28:02},{k}\n" for k in range(60)))
    with pytest.raises(InvalidInput, match="at: read as the moments; n: numbers the rows"):
        infer_file(file, options=Options(timezone="UTC"))


def test_classes_written_in_two_ways_are_noted_and_numbers_of_customers_are_left_out(tmp_path: Path) -> None:
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [
        f"{1000 + k % 250};{begin + timedelta(hours=6 * k):%Y-%m-%dT%H:%M:%SZ};{k % 7},5;{('ja', 'nein', 'Ja ')[k % 3]}"
        for k in range(800)
    ]
    file = tmp_path / "churn.csv"
    file.write_text("\n".join(["Kunden-Nr;Ende;Betrag;Gekündigt", *rows]))
    inferred = infer_file(file)
    assert any("the classes 'Ja ' and 'ja' differ in case or blanks only" in note for note in inferred.notes)
    assert "Kunden-Nr: numbers that look like ids" in inferred.text
    assert 'name = "kunden_nr"' not in inferred.text
    assert "--id-from Kunden-Nr,Ende" in inferred.import_command
    assert "Ids are made of Kunden-Nr and Ende." in inferred.text
    file.write_text("\n".join(["Kunden-Nr;Ende;Betrag;Gekündigt", *rows, rows[3]]))  # an equal row is no other event
    assert "--id-from Kunden-Nr,Ende" in infer_file(file).import_command
    file.write_text("\n".join(["Kunden-Nr;Ende;Betrag;Gekündigt", *rows, rows[3].replace(",5;", ",7;")]))
    assert "--id-from" not in infer_file(file).import_command


def test_a_guessed_label_is_said_on_the_screen_and_is_rather_an_amount_than_a_weekday(tmp_path: Path) -> None:
    begin = datetime(2025, 1, 6, tzinfo=UTC)
    moments = [begin + timedelta(hours=k) for k in range(24 * 28)]
    lines = [f"{at:%Y-%m-%dT%H:%M:%SZ};{40 + at.hour},{at.day:02};{at.hour};{at.weekday()}" for at in moments]
    file, out = tmp_path / "netz.csv", tmp_path / "netz.toml"
    file.write_text("\n".join(["Zeitpunkt;Last_MW;Stunde;Wochentag", *lines]))
    run = ["task", "infer", str(file), "--out", str(out)]
    said = " ".join(CliRunner().invoke(app, run).output.split())
    guess = "the label is Last_MW, guessed as the last column of decimal numbers; --label COLUMN names another."
    assert f"Note: {guess}" in said
    assert "run infer again with --force and an option, such as --label COLUMN" in said
    assert "40,06; 41,06; " in out.read_text()
    again = " ".join(CliRunner().invoke(app, [*run, "--force", "--label", "Wochentag"]).output.split())
    assert "of wochentag by" in again
    assert "the label is" not in again
