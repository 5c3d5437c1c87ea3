"""`python -m benchmarks answers`: how right the answers of real streams were, by the log and computed from the answers.

Each stream is walked as its users would: a version is fitted on its first windows, `morrow serve` answers the rows of
the next windows, their labels come by the ids of the answers, and the trainer's job scores the log. A second version,
fitted a window later, follows. The figures of the status are compared with those that NumPy computes from the same
answers. Nine labels in ten are sent, and one in fifty of these is corrected. Fits are small: how good an answer is does
not matter here.
"""

import argparse
import math
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, text

from benchmarks.datasets import CHOSEN_ON, Dataset, default_folder, load, split_names
from benchmarks.output import add_output_options, record_run
from benchmarks.result_files import Figure, Label
from benchmarks.serving.release import make_key
from benchmarks.serving.servers import morrow
from benchmarks.streams import temporary_store
from contracts.clock import format_moment, parse_moment
from contracts.task import Task
from estimators.fitting import Version, fit_version
from service.models.local_copies import Current, write_current
from store.events.batches import Event, EventBatch
from trainer.evaluation.calibration import LEAST_PROBABILITY
from trainer.monitoring.answer_scoring import AnswerScoring
from trainer.settings import TrainerSettings

# Windows that a version is fitted on, and windows after its cutoff that it is asked about.
_NUM_FITTED = 7
_NUM_AGES = 2
# Every how many rows of a stream are used: of the flights fewer, for their windows are large.
_EVERY = {"flights": 8}
_ROWS_PER_REQUEST = 1000
_LABELLED = 0.9
_CORRECTED = 0.02
_WAIT_SECONDS = 120.0
# The status shows this for all answers of a version and age, and NumPy finds it in the answers.
_COMPARED = ("error", "expected_error", "error_rate", "coverage", "promised_coverage", "calibration_error")

Answer = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """A figure of the answers of one version and age: as the status shows it, and as NumPy computes it."""

    version: str
    age: int
    num_answers: int
    num_labelled: int
    figures: Mapping[str, tuple[float, float]]

    @property
    def difference(self) -> float:
        """The largest relative difference of the two."""
        return max(abs(shown - found) / max(abs(found), 1e-300) for shown, found in self.figures.values())


@dataclass(frozen=True)
class Asked:
    """Answers that a client got, and the labels that it sent for some of them by their ids."""

    answers: list[Answer]
    labels: dict[str, str | float]


def main(arguments: list[str]) -> None:
    """Print a table of the figures of each stream."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks answers", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the data sets")
    parser.add_argument(
        "--sets", default="elec2,house_half_yearly,appliance,flights", help="names of data sets, separated by commas"
    )
    add_output_options(parser)
    options = parser.parse_args(arguments)
    console = Console(width=100)
    streams: dict[str, list[Compared]] = {}
    for name in split_names(options.sets):
        streams[name] = walk(name, load(name, options.data), console)
        console.print(make_table(name, streams[name]))
    worst = max(one.difference for found in streams.values() for one in found)
    console.print(f"Largest relative difference between shown and computed figures: {worst:.1e}", highlight=False)
    figures = [figure for name, found in streams.items() for one in found for figure in list_figures(name, one)]
    if options.json:
        options.json.write_bytes(msgspec.json.encode(figures))
    if options.results:
        title = "Answers that were given on real streams: their error and coverage by the log, and by the answers"
        record_run(options.results, title, ["answers", *arguments], figures, seeds=1)


def walk(name: str, dataset: Dataset, console: Console) -> list[Compared]:
    """The figures of two versions of a stream."""
    training = dataset.task.training.model_copy(update={"num_seeds": 1, "experts": ("gi",), "tune": False})
    guard = dataset.task.guard.model_copy(update={"max_age": _NUM_AGES, "rivals": ()})
    task = dataset.task.model_copy(update={"training": training, "guard": guard, "schedule": "manual"})
    events, window = dataset.events[:: _EVERY.get(name, 1)], task.clock.window
    first = task.clock.window_start(events[0].at) + max(CHOSEN_ON[name], _NUM_FITTED) * window
    asked = Asked([], {})
    cutoffs: dict[str, int] = {}
    with temporary_store() as engine, tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        url, key = (
            engine.url.render_as_string(hide_password=False),
            make_key(engine.url.render_as_string(hide_password=False)),
        )
        for place in range(2):
            version, until = str(place + 1), first + place * window
            with console.status(f"{name}: fitting version {version} …"):
                known = [one for one in events if until - _NUM_FITTED * window <= one.at and one.known_at < until]
                fitted = fit(task, known, Path(folder))
            home = Path(folder, version)
            cutoffs[version] = fitted.cutoff
            put(fitted, version, home)
            later = [one for one in events if fitted.cutoff <= one.at < fitted.cutoff + _NUM_AGES * window]
            with serving(home, url, key, task) as client:
                ask_and_label(client, engine, fitted.task, later, asked, seed=place)
                AnswerScoring(engine, threading.Event()).score_touched(datetime.now(UTC))
                status = client.get(f"/tasks/{task.name}").raise_for_status().json()
    return compare(asked, cutoffs, window, status["answers"]["by_age"])


def fit(task: Task, events: Sequence[Event], home: Path) -> Version:
    """A version fitted on these rows."""
    settings = TrainerSettings(home=home / "fits", threads=1, device="cpu")
    return fit_version(task, EventBatch.of(events), settings, now=datetime.now(UTC), report=_ignore)


def put(fitted: Version, version: str, home: Path) -> None:
    """Leave a version in the home of a service, valid for all windows that it will be asked about."""
    folder = home / "models" / fitted.task.name / version
    folder.mkdir(parents=True)
    for file, content in fitted.files.items():
        (folder / file).write_bytes(content)
    write_current(folder.parent, Current(version, fitted.cutoff + _NUM_AGES * fitted.task.clock.window))


@contextmanager
def serving(home: Path, url: str, key: str, task: Task) -> Iterator[httpx.Client]:
    """A client of a process of `morrow serve`, which knows the task. It has no registry to follow."""
    headers = {"Authorization": f"Bearer {key}"}
    with (
        morrow(home, url, "http://127.0.0.1:9", key=key, path="/tasks") as server,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False, headers=headers) as client,
    ):
        client.put(f"/tasks/{task.name}", json=task.model_dump(mode="json")).raise_for_status()
        yield client


def ask_and_label(
    client: httpx.Client, engine: Engine, task: Task, events: Sequence[Event], asked: Asked, *, seed: int
) -> None:
    """Ask about all rows, send labels for nine in ten, and correct some of these."""
    rng = np.random.default_rng(seed)
    for start in range(0, len(events), _ROWS_PER_REQUEST):
        some = events[start : start + _ROWS_PER_REQUEST]
        rows = [{"at": format_moment(one.at), "features": read_features(task, one)} for one in some]
        body, params = {"rows": rows}, {"task": task.name, "coverage": "0.9"}
        got = client.post("/predict", params=params, json=body)
        if got.status_code == httpx.codes.UNPROCESSABLE_ENTITY:  # too few scored rows support sets of this age
            got = client.post("/predict", params={"task": task.name}, json=body)
        answers = got.raise_for_status().json()["answers"]
        _await_log(engine, answers)
        chosen = [one for one in zip(answers, some, rows, strict=True) if rng.random() < _LABELLED]
        labels = {answer["id"]: _read_label(task, event.label) for answer, event, _ in chosen}
        sent = [
            {"prediction_id": answer["id"], "label": labels[answer["id"]], "known_at": format_moment(event.known_at)}
            for answer, event, _ in chosen
        ]
        joined = client.post(f"/tasks/{task.name}/labels", json=sent).raise_for_status().json()["joined"]
        assert joined == len(sent), "the log has every answer"
        for answer, _, row in chosen:
            if rng.random() < _CORRECTED:
                other = chosen[int(rng.integers(len(chosen)))][1].label
                labels[answer["id"]] = _read_label(task, other)
                event = {**row, "label": labels[answer["id"]]}
                client.put(f"/events/{answer['id']}", params={"task": task.name}, json=event).raise_for_status()
        asked.answers.extend(answers)
        asked.labels.update(labels)


def read_features(task: Task, event: Event) -> dict[str, Any]:
    """The features of a row as a client sends them; missing ones are left out."""
    found: dict[str, Any] = {
        one.name: bool(value) if one.kind == "boolean" else int(value) if one.kind == "integer" else value
        for one, value in zip(task.numbers, event.numbers, strict=True)
        if not math.isnan(value)
    }
    return found | {one.name: value for one, value in zip(task.categories, event.categories, strict=True) if value}


def compare(
    asked: Asked, cutoffs: Mapping[str, int], window: int, shown: Sequence[Mapping[str, Any]]
) -> list[Compared]:
    """What the status shows, next to what is computed from the answers."""
    groups: dict[tuple[str, int], list[Answer]] = {}
    for one in asked.answers:
        age = (parse_moment(one["at"]) - cutoffs[one["version"]]) // window
        groups.setdefault((one["version"], age), []).append(one)
    of_status = {(one["version"], one["age"]): one for one in shown}
    assert of_status.keys() == groups.keys(), "each version and age that answered is shown"
    compared = []
    for (version, age), answers in sorted(groups.items()):
        found, known = compute(answers, asked.labels), of_status[version, age]
        counts = len(answers), sum(one["id"] in asked.labels for one in answers)
        assert (known["num_answers"], known["num_labelled"]) == counts, "each answer and label counts once"
        figures = {name: (known[name], found[name]) for name in _COMPARED if known[name] is not None}
        assert figures.keys() == found.keys(), "a figure is shown if there is one"
        compared.append(Compared(version, age, *counts, figures))
    return compared


def compute(answers: Sequence[Answer], labels: Mapping[str, str | float]) -> dict[str, float]:
    """The figures of answers of one version and age, from what the client got and sent."""
    known = [one for one in answers if one["id"] in labels]
    truth = [labels[one["id"]] for one in known]
    found: dict[str, float] = {}
    if "probabilities" in known[0]:
        given = np.array([one["probabilities"].get(label, 0.0) for one, label in zip(known, truth, strict=True)])
        best = np.array([max(one["probabilities"].values()) for one in known])
        right = np.array([one["prediction"] == label for one, label in zip(known, truth, strict=True)])
        bins = np.minimum((best * 10).astype(int), 9)
        gaps = [abs(right[bins == k].mean() - best[bins == k].mean()) * (bins == k).mean() for k in np.unique(bins)]
        found["error"] = float(-np.log(given.clip(LEAST_PROBABILITY, 1.0)).mean())
        found["error_rate"] = float((~right).mean())
        found["calibration_error"] = float(np.sum(gaps))
    else:
        found["error"] = float(np.abs(np.array(truth) - np.array([one["mean"] for one in known])).mean())
    expected = [one["expected_error"] for one in known if one["expected_error"] is not None]
    if expected:
        found["expected_error"] = float(np.mean(expected))
    pairs = [
        (one, label) for one, label in zip(known, truth, strict=True) if one.get("interval") or "prediction_set" in one
    ]
    if pairs:
        covered = [
            label in one["prediction_set"]
            if "prediction_set" in one
            else one["interval"][0] <= label <= one["interval"][1]
            for one, label in pairs
        ]
        found["coverage"] = float(np.mean(covered))
        found["promised_coverage"] = float(np.mean([one["coverage"] for one, _ in pairs]))
    return found


def list_figures(name: str, one: Compared) -> list[Figure]:
    """What is kept of a version and age: its figures, each with that of NumPy, and how far they are apart."""
    of: dict[str, Label] = {"set": name, "version": one.version, "age": one.age}
    kept = [
        Figure(of=of, measure=measure, unit="1", value=value, yardstick=computed)
        for measure, (value, computed) in one.figures.items()
    ]
    return [*kept, Figure(of=of, measure="largest relative difference", unit="1", value=one.difference)]


def make_table(name: str, found: Sequence[Compared]) -> Table:
    """The figures of a stream's answers, and how far those of the status and NumPy are apart."""
    table = Table("version", "age", "answers", "labels", "error", "expected", "coverage", "calibration", "difference")
    table.title = name
    for one in found:
        shown = {key: f"{value:.4f}" for key, (value, _) in one.figures.items()}
        names = ("error", "expected_error", "coverage", "calibration_error")
        table.add_row(
            one.version,
            str(one.age),
            f"{one.num_answers:,}",
            f"{one.num_labelled:,}",
            *(shown.get(key, "–") for key in names),
            f"{one.difference:.0e}",
        )
    return table


def _await_log(engine: Engine, answers: Sequence[Answer]) -> None:
    """Wait until the log has all of these."""
    query = text("SELECT count(*) FROM predictions WHERE id = ANY(CAST(:ids AS uuid[]))")
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        with engine.connect() as connection:
            if connection.execute(query, {"ids": [one["id"] for one in answers]}).scalar_one() == len(answers):
                return
        assert time.monotonic() < deadline, "the log takes an answer within seconds"
        time.sleep(0.05)


def _read_label(task: Task, label: str) -> str | float:
    return label if task.is_classification else float(label)


def _ignore(_event: str, /, **_facts: object) -> None:
    """A small fit needs no report."""
