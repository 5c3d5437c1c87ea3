"""Runs `morrow demo` and keeps its figures: weeks of real flights, each predicted by a version fitted at its start."""

import argparse
import json
import subprocess
import tempfile
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.output import add_output_options, record_run
from benchmarks.result_files import Figure, Label
from cli.demo.flights import read_task_file
from cli.demo.report import METHODS
from contracts.runtime.python_process import python_command
from contracts.task import Task

MEASURES = {"log_loss": ("nats", 1.0), "error": ("%", 100.0)}


def main(arguments: list[str]) -> None:
    """Run the demo, which prints; then write what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks demo", description=__doc__)
    parser.add_argument("--weeks", type=int, default=6, help="weeks that are predicted")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        file = Path(folder) / "demo.json"
        command = python_command("-m", "cli.main", "demo", "--weeks", str(options.weeks), "--json", str(file))
        subprocess.run(command, check=True)
        document = json.loads(file.read_text("utf-8"))
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if options.results:
        title = "The flights demo: six weeks answered, each by a version fitted at its start"
        seeds = Task.model_validate(tomllib.loads(read_task_file())).training.num_seeds
        record_run(options.results, title, ["demo", *arguments], figures_of(document), seeds=seeds)


def figures_of(document: dict[str, Any]) -> list[Figure]:
    """The demo's document as data: every week, the means over weeks that all methods answered, seconds and memory."""
    weeks, seconds = document["weeks"], document["seconds"]
    spent = {
        "the whole demo": seconds["install_free_total"],
        "ingest": seconds["ingest"],
        "median cycle": seconds["cycle_median"],
    }
    memory: dict[str, Label] = {"what": "all processes, sum of proportional set sizes"}
    return [
        *(figure for week in weeks for figure in _week(week)),
        *(figure for measure in MEASURES for figure in _means(measure, weeks)),
        *(Figure(of={"what": what}, measure="seconds", unit="s", value=value) for what, value in spent.items()),
        Figure(of=memory, measure="memory", unit="MiB", value=document["peak_rss_mb"]),
    ]


def _week(week: dict[str, Any]) -> list[Figure]:
    """A week's version, requests, and the figures of each method that answered."""
    start = week["start"][:10]
    version = None if week["version"] is None else int(week["version"])
    return [
        Figure(
            of={"week": start}, measure="version", unit="", value=version, note="" if version else "no version answered"
        ),
        Figure(of={"week": start}, measure="requests", unit="", value=week["requests"]),
        *(
            Figure(of={"method": method, "week": start}, measure=measure, unit=unit, value=scale * value)
            for measure, (unit, scale) in MEASURES.items()
            for method, value in week[measure].items()
            if value is not None
        ),
    ]


def _means(measure: str, weeks: list[dict[str, Any]]) -> list[Figure]:
    unit, scale = MEASURES[measure]
    answered = [week[measure] for week in weeks if None not in week[measure].values()]
    return [
        Figure(of={"method": name}, measure=measure, unit=unit, value=scale * fmean(week[name] for week in answered))
        for name in (METHODS if answered else ())
    ]
