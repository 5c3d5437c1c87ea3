"""The demo's rivals `baseline`, `last_window` and `naive`, fitted and scored in a process of their own.

Each is fitted as of the same cutoff as ours, on the same rows and with the same budget of epochs and rows. The same
code scores it, so only the method differs. The process is `python -m cli.demo.rival_worker`: it answers each line of
JSON with a line of JSON and ends at the end of its input. So torch stays out of the demo's memory.
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

from store.engine import make_engine
from store.error_cells import NAIVE, Cell
from store.tasks.catalog import Schema, find_task
from trainer.data.snapshot import read
from trainer.data.windows import history_start
from trainer.evaluation.origin_fits import fit_origins
from trainer.evaluation.scoring import score_cell, score_naive
from trainer.export.onnx_export import build_graph
from trainer.export.opened_artefact import open_graph
from trainer.methods.naive_answer import naive_answer
from trainer.network.device import choose_device
from trainer.rivals.rivals import with_method
from trainer.settings import TrainerSettings

NETWORKS = ("baseline", "last_window")


@dataclass(frozen=True)
class ScoreRequest:
    """Score rivals fitted as of `cutoff` on the window that begins there, with the labels known at `known_by`."""

    task: str
    cutoff: int
    known_by: int


def score_rivals(
    engine: Engine, schema: Schema, request: ScoreRequest, settings: TrainerSettings, now: datetime
) -> dict[str, Cell]:
    """Method -> the cell of the window that begins at the cutoff. Moments in microseconds."""
    start = request.cutoff
    reading = read(engine, schema, request.known_by, now, since=history_start(schema.task, start))
    rows = reading.events.in_window(start, start + schema.task.clock.window)
    device = choose_device(settings)
    cells: dict[str, Cell] = {}
    classes: tuple[str, ...] = ()
    for method in NETWORKS:
        rival = with_method(reading, method)
        (fit,) = fit_origins(rival, [start], device, settings.max_members, _ignore)
        classes = fit.encoder.classes
        session = open_graph(build_graph(fit.encoder, fit.network, fit.members).SerializeToString())
        cells[method] = score_cell(rival.schema.task, session, classes, rows, origin=start, window=start)
    given = naive_answer(schema.task, reading.fit_rows(start), classes)
    cells[NAIVE] = score_naive(schema.task, given, classes, rows, origin=start, window=start)
    return cells


def _ignore(_epoch: object) -> None:
    """The rivals' epochs are not reported."""


def main(now: Callable[[], datetime]) -> None:
    """Answer requests from standard input; when the input ends, the process exits at once, even during a fit."""
    settings = TrainerSettings()
    if settings.database_url is None:
        raise SystemExit("MORROW_DATABASE_URL is needed.")
    engine = make_engine(settings.database_url, pool_size=1)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while True:
        request = ScoreRequest(**json.loads(lines.get()))
        with engine.connect() as connection:
            schema = find_task(connection, request.task)
        cells = score_rivals(engine, schema, request, settings, now())
        answer = {method: {"log_loss": cell.loss, "error": cell.metric} for method, cell in cells.items()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _listen(lines: SimpleQueue[str]) -> None:
    """Read from a duplicate of standard input: a thread blocked in `sys.stdin` would delay the interpreter's exit."""
    with os.fdopen(os.dup(sys.stdin.fileno())) as stream:
        for line in stream:
            lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(lambda: datetime.now(UTC))
