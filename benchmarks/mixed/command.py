"""`python -m benchmarks mixed`: events, predictions, corrections, cycles, closings, rollbacks and swaps, all at once.

The real stack of `morrow up` runs in a temporary folder. At the end every acknowledged event is looked up in the store,
and every answer is compared with the graph of the version that it named. The memory of the API is sampled every few
seconds and must not have grown after the first minute. Exits with 1 if anything was lost, duplicated or wrong.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil
from rich.console import Console

from benchmarks.hardware import hardware
from benchmarks.mixed.answers import Verdict, hold
from benchmarks.mixed.clients import Client, Record, fill_history, traffic
from benchmarks.mixed.ledger import Audit, Ledger
from benchmarks.mixed.story import ACTS, Stage, retrain
from benchmarks.mixed.stream import Present, make_task
from benchmarks.output import add_output_options, record_run
from benchmarks.result_files import Figure
from cli.local.peak_memory import measure_memory
from cli.local.stack import EmbeddedStack, free_port
from contracts.runtime.settings import SharedSettings
from service.settings import ServiceSettings
from store.engine import make_engine
from store.tasks.catalog import find_task

TASK = "mixed"
SAMPLE_SECONDS = 5.0
MAX_GROWTH = 0.05


@dataclass(frozen=True)
class Memory:
    """Samples of the API's memory: seconds since the load began, and bytes; the first `warm_seconds` do not count."""

    samples: Sequence[tuple[float, int]]
    warm_seconds: float

    @property
    def slope(self) -> float:
        """Bytes a second, by least squares."""
        seconds, sizes = zip(*self._counted, strict=True)
        return float(np.polyfit(seconds, sizes, 1)[0]) if len(sizes) > 1 else 0.0

    @property
    def growth(self) -> float:
        """Median of the last quarter over the median of the first, less one."""
        sizes = [size for _, size in self._counted]
        quarter = max(len(sizes) // 4, 1)
        return median(sizes[-quarter:]) / median(sizes[:quarter]) - 1

    @property
    def _counted(self) -> list[tuple[float, int]]:
        return [sample for sample in self.samples if sample[0] >= self.warm_seconds] or list(self.samples[-1:])

    def __str__(self) -> str:
        sizes = [size / 2**20 for _, size in self._counted]
        return (
            f"the API's memory after the first {self.warm_seconds:.0f} s: {sizes[0]:.1f} to {sizes[-1]:.1f} MiB, "
            f"{60 * self.slope / 2**20:+.2f} MiB a minute, last quarter {100 * self.growth:+.1f} % over the first"
        )


@dataclass(frozen=True)
class Outcome:
    """A run and its findings."""

    seconds: float
    record: Record
    acts: dict[str, int]
    audit: Audit
    verdict: Verdict
    memory: Memory

    @property
    def is_clean(self) -> bool:
        """Nothing was lost, duplicated or wrong, and no client got a reply that it may not get."""
        return self.audit.is_clean and not self.verdict.faults and not self.record.faults

    @property
    def is_flat(self) -> bool:
        return self.memory.growth <= MAX_GROWTH

    def figures(self, num_workers: int) -> list[Figure]:
        """The counts that matter, as data."""
        counts = {
            "events acknowledged": self.audit.num_events,
            "events lost or doubled": len({*self.audit.lost, *self.audit.duplicated, *self.audit.wrong}),
            "answers": self.verdict.num_answers,
            "answers wrong": len(self.verdict.faults),
        }
        return [
            Figure(of={"what": what, "workers": num_workers}, measure="count", unit="", value=count)
            for what, count in counts.items()
        ]

    def document(self) -> dict[str, Any]:
        """Everything except the answers themselves, for JSON."""
        return {
            "seconds": self.seconds,
            "requests": {f"{verb} {status}": count for (verb, status), count in sorted(self.record.counts.items())},
            "slowest_seconds": self.record.slowest_seconds,
            "story": self.acts,
            "audit": asdict(self.audit),
            "answers_of": dict(self.verdict.answers_of),
            "num_refusals": self.verdict.num_refusals,
            "largest_difference": self.verdict.largest_difference,
            "latest_seconds": self.verdict.latest_seconds,
            "faults": [*self.record.faults, *self.verdict.faults],
            "memory": {"samples": self.memory.samples, "slope": self.memory.slope, "growth": self.memory.growth},
            "hardware": hardware(),
        }


def main(arguments: list[str]) -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    add_output_options(parser)
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    outcome = measure(60 * given.minutes, console)
    console.print(hardware())
    console.print(f"{outcome.seconds:.0f} s: {outcome.record.describe()}")
    console.print(", ".join(f"{count} {act}" for act, count in sorted(outcome.acts.items())))
    for line in (outcome.audit, outcome.verdict, outcome.memory):
        console.print(str(line))
    for fault in [*outcome.record.faults, *outcome.verdict.faults][:20]:
        console.print(f"wrong: {fault}")
    if given.json:
        given.json.write_text(json.dumps(outcome.document(), indent=2) + "\n")
    if given.results:
        title = f"{given.minutes:g} minutes of events, corrections, questions, cycles, closings and swaps at once"
        record_run(given.results, title, ["mixed", *arguments], outcome.figures(ServiceSettings().workers))
    sys.exit(0 if outcome.is_clean and outcome.is_flat else 1)


def measure(seconds: float, console: Console) -> Outcome:
    """Put on load for at least this long. An act that has begun is finished."""
    ledger, record, present = Ledger(), Record(), Present()
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        shared = SharedSettings(home=Path(folder) / "home", database_url=None, mlflow_url=None)
        with EmbeddedStack(shared, free_port(), console) as stack:
            url, engine = stack.addresses.api, make_engine(stack.addresses.database)
            client = Client(url, TASK, ledger, record, seed=1000)
            with httpx.Client(base_url=url, timeout=60) as api:
                spec = make_task(TASK).model_dump(mode="json", exclude={"name"})
                api.put(f"/tasks/{TASK}", json=spec).raise_for_status()
                fill_history(client, "history")
                stage = Stage(api, TASK, present, ledger, client, stack.check)
                retrain(stage)
                with traffic(url, TASK, present, ledger, record), _sampled() as samples:
                    began = time.monotonic()
                    for act in cycle(ACTS):
                        act(stage)
                        if time.monotonic() - began >= seconds:
                            break
                    seconds = time.monotonic() - began
            client.close()
            with engine.connect() as connection:
                schema = find_task(connection, TASK)
            audit = ledger.audit(engine, schema.task_id)
            verdict = hold(record.heard, engine, schema, stack.addresses.mlflow, Path(folder) / "versions")
            engine.dispose()
    return Outcome(seconds, record, dict(stage.acts), audit, verdict, Memory(samples, min(60.0, seconds / 3)))


@contextmanager
def _sampled() -> Iterator[list[tuple[float, int]]]:
    """Memory of the API process and its workers together, every few seconds while the block runs."""
    (api,) = (child for child in psutil.Process().children() if "serve" in child.cmdline())
    samples: list[tuple[float, int]] = []
    ended, began = threading.Event(), time.monotonic()

    def sample() -> None:
        while True:
            size = sum(map(measure_memory, [api, *api.children(recursive=True)]))
            samples.append((time.monotonic() - began, size))
            if ended.wait(SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=sample, name="memory")
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
