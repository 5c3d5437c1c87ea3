"""`python -m benchmarks paper`: every cell of the paper's tables, ours and the published one.

Cells run from the cheapest to the dearest, and each is kept in the file of `--json` as soon as it is there. So a run
that is stopped continues where it was, and the same fit in two tables is trained once. `--list` shows what a table
costs before it is run. `--choose` chooses what the paper leaves open, or what is released, inside the training range,
and scores no test domain.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import torch
from rich.console import Console

from benchmarks.datasets import default_folder
from benchmarks.output import record_run
from benchmarks.paper.cells import Kept, figure_of
from benchmarks.paper.choices import CHOSEN, RELEASED, words, write_choices
from benchmarks.paper.choose import choose
from benchmarks.paper.choose_released import Chosen, choose_released
from benchmarks.paper.jobs import Bench, list_costs, run_jobs
from benchmarks.paper.recipes import PAPER, WEIGHTED
from benchmarks.paper.report import draw, grids, reasons, write_markdown
from benchmarks.paper.runs import loader, missing_file
from benchmarks.paper.tables import QUICK, SERVED, TABLES, select
from contracts.runtime.settings import SharedSettings
from trainer.tuning.search import Budget

if TYPE_CHECKING:
    from trainer.tracking.registry import Registry


def main(arguments: list[str]) -> None:
    """Run the requested cells. Exits with 1 if a method broke."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sets = options.sets or (list(QUICK) if options.quick else [])
    bench = Bench(options.data, loader(options.data), 2 if options.quick else options.seeds, console)
    if options.choose:
        budget = Budget(options.trials, options.trial_seconds)
        _choose(bench, sets, options, budget)
        return
    entries = select(options.tables, sets, options.methods)
    if options.list:
        list_costs(bench, entries)
        return
    kept = Kept(options.json)
    registry = None if options.no_mlflow else _registry(options.mlflow)
    is_sound = run_jobs(bench, entries, kept, registry, 60 * options.minutes)
    drawn = grids(entries, kept)
    for each in drawn:
        draw(console, each)
    if options.results:
        title = "The paper's tables: every method on every set, with the published figure"
        cells = [(entry, cell) for entry in entries if kept.is_new(entry) and (cell := kept.find(entry))]
        figures = [figure for entry, cell in cells if (figure := figure_of(entry, cell)) is not None]
        record_run(options.results, title, ["paper", *arguments], figures, seeds=bench.num_models)
    if options.markdown:
        write_markdown(options.markdown, drawn, reasons(entries, kept))
    if options.pictures or registry:
        _keep_pictures(bench, sets, kept, options.pictures, registry)
    if not is_sound:
        sys.exit(1)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks paper", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder with the paper's data sets")
    known = sorted({entry.set for table in TABLES.values() for entry in table.entries})
    _names(parser, "--sets", known, "sets; all of them if none is named")
    methods = sorted({entry.method for table in TABLES.values() for entry in table.entries})
    _names(parser, "--methods", methods, "methods; all of them if none is named")
    _names(parser, "--tables", sorted(TABLES), "tables; all of them if none is named")
    parser.add_argument("--seeds", type=int, default=5, help="independent models of a cell")
    parser.add_argument("--quick", action="store_true", help="two models a cell, small sets only")
    parser.add_argument("--threads", type=int, default=1, help="threads of a fit; a second one slows small networks")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no fit after this many; 0 prints what --json holds"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="show what each table would cost, and run nothing")
    instead.add_argument("--choose", choices=("paper", "released"), help="choose recipes' settings, and run no table")
    parser.add_argument("--trials", type=int, default=40, help="most recipes that `--choose released` tries on a set")
    parser.add_argument("--trial-seconds", type=float, default=900.0, help="most seconds that it takes on a set")
    parser.add_argument("--choices", type=Path, metavar="FILE", help="write choices here, not into the checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep cells here; cells that it holds are not rerun")
    parser.add_argument("--results", metavar="NAME", help="add the cells of this run to benchmarks/results/NAME.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables here")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="also keep the paper's pictures here")
    parser.add_argument("--mlflow", metavar="WHERE", help="address of a server, or a folder for MLflow's files")
    parser.add_argument("--no-mlflow", action="store_true", help="log no runs")
    return parser.parse_args(arguments)


def _names(parser: argparse.ArgumentParser, option: str, known: Sequence[str], purpose: str) -> None:
    def names(text: str) -> list[str]:
        given = text.split(",")
        if strange := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(strange)}; there are {', '.join(known)}")
        return given

    parser.add_argument(option, type=names, default=[], metavar="A,B", help=f"{purpose}: {', '.join(known)}")


def _registry(where: str | None) -> "Registry":
    from benchmarks.paper.mlflow_log import open_registry

    settings = SharedSettings()
    return open_registry(where or settings.mlflow_url or str(settings.home / "benchmarks"))


def _keep_pictures(
    bench: Bench, sets: Sequence[str], kept: Kept, folder: Path | None, registry: "Registry | None"
) -> None:
    """The pictures of what was run, as files and in MLflow."""
    from benchmarks.paper.gallery import boundaries, curves, weights

    drawn = curves(kept)
    if (not sets or "moons" in sets) and not missing_file(bench.folder, "moons"):
        drawn["boundaries_moons"] = boundaries(bench.load("moons"), bench.num_models)
    if not sets:
        drawn["weights_boolean"] = weights(bench.num_models)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in drawn.items():
            picture.savefig(folder / f"{name}.png", dpi=120)
    if registry and drawn:
        from benchmarks.paper.mlflow_log import log_pictures

        log_pictures(registry, drawn)


def _choose(bench: Bench, sets: Sequence[str], options: argparse.Namespace, budget: Budget) -> None:
    for name in sets or (PAPER if options.choose == "paper" else SERVED):
        if lacking := missing_file(bench.folder, name):
            bench.console.print(f"{name}: {lacking} is missing")
        elif options.choose == "paper":
            found = choose(bench.load(name), options.methods or WEIGHTED, bench.num_models, bench.console.print)
            write_choices(options.choices or CHOSEN, {name: found})
        else:
            for method in get_args(Chosen):
                if options.methods and method not in options.methods:
                    continue
                choice = choose_released(bench.load(name), method, budget, bench.console.print)
                bench.console.print(f"{name}, {method}: {words(choice.changes)}; {choice.chosen_by}")
                write_choices(options.choices or RELEASED, {name: {method: choice}})
