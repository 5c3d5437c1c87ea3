"""The demo's rivals: the all-past and the last-window network, and the base rate of the last known window.

They are fitted as of the same cutoff, on the same rows, with the same budget of epochs and rows, and scored by the same
code as ours; only the method differs. They run in a process of their own, `python -m cli.demo.rival_worker`, which
answers a line
of JSON with a line of JSON: torch stays out of the demo's memory, and at the end of its input the process ends.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue

from sqlalchemy import Engine

from store.catalog import Schema, find_task
from store.cells import Cell
from store.database import make_engine
from trainer.data.snapshot import read
from trainer.evaluation.fit_store import fit_origins
from trainer.evaluation.scoring import naive_answer, score_cell, score_naive
from trainer.export.onnx_export import build_graph
from trainer.export.session import open_graph
from trainer.network.device import choose_device
from trainer.rivals.rivals import with_method
from trainer.settings import TrainerSettings

METHODS = {"all_past": "baseline", "last_window": "last_window"}
BASE_RATE = "base_rate"


@dataclass(frozen=True)
class Question:
    """Score rivals fitted as of `cutoff` on the window that begins there, with the labels known at `known_by`."""

    task: str
    cutoff: int
    known_by: int


def score_rivals(
    engine: Engine, schema: Schema, question: Question, settings: TrainerSettings, now: datetime
) -> dict[str, Cell]:
    """name -> the cell of the window that begins at the cutoff. Moments in microseconds."""
    reading = read(engine, schema, question.known_by, now)
    start = question.cutoff
    rows = reading.events.in_window(start, start + schema.task.clock.window)
    device = choose_device(settings)
    cells: dict[str, Cell] = {}
    classes: tuple[str, ...] = ()
    for name, method in METHODS.items():
        rival = with_method(reading, method)
        (fit,) = fit_origins(rival, [start], device, settings.max_members, _ignore)
        classes = fit.encoder.classes
        session = open_graph(build_graph(fit.encoder, fit.network, fit.members).SerializeToString())
        cells[name] = score_cell(rival.schema.task, session, classes, rows, origin=start, window=start)
    given = naive_answer(schema.task, reading.fit_rows(start), classes)
    cells[BASE_RATE] = score_naive(schema.task, given, classes, rows, origin=start, window=start)
    return cells


def _ignore(_epoch: object) -> None:
    """Nobody follows the rivals' epochs."""


def main(now: Callable[[], datetime]) -> None:
    """Answer questions from standard input; when it ends, the process ends in the midst of whatever it does."""
    settings = TrainerSettings()
    if settings.database_url is None:
        raise SystemExit("MORROW_DATABASE_URL is needed.")
    engine = make_engine(settings.database_url, pool_size=1)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while True:
        question = Question(**json.loads(lines.get()))
        with engine.connect() as connection:
            schema = find_task(connection, question.task)
        cells = score_rivals(engine, schema, question, settings, now())
        answer = {name: {"log_loss": cell.loss, "error": cell.metric} for name, cell in cells.items()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _listen(lines: SimpleQueue[str]) -> None:
    """Through a stream of its own: a thread that waits in `sys.stdin` would hold up the interpreter's end."""
    with os.fdopen(os.dup(sys.stdin.fileno())) as stream:
        for line in stream:
            lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(lambda: datetime.now(UTC))
