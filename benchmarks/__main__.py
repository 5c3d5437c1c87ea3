"""`python -m benchmarks NAME …`: measured figures, each with its yardstick."""

import importlib
import sys

BENCHMARKS = {
    "paper": "every cell of the paper's tables, ours and the published one",
    "moons": "the paper's 2-Moons: error on the first unseen domain",
    "blind": "the default recipe compared with LightGBM, on streams that nothing was set for",
    "replay": "what would have been served on real streams, and how right it was",
    "answers": "how right the answers of real streams were, by the log and computed from the answers themselves",
    "recipes": "choose a stream's hyper-parameters, and LightGBM's, on its first windows",
    "demo": "the flights demo: six weeks, each predicted by a version fitted at its start",
    "flights": "the flights recipe and its rivals, on the 26 weeks that chose it",
    "training": "a step of the GI loss compared with a plain one, and a cohort with one member",
    "cycles": "a whole cycle compared with one fit of the same network, on the flights task",
    "mixed": "events, answers, corrections, cycles and swaps at once: nothing lost, doubled or wrong",
    "ingest": "taking events, compared with routes that write through SQLAlchemy, and pgbench",
    "reading": "reading events for training, compared with pandas.read_sql, and the memory of an epoch",
    "tasks": "many tasks on one machine: what they cost while nobody asks, and how soon a change is obeyed",
    "serving": "an answer, compared with a FastAPI no-op, a bare constant, and MLflow's server",
}


def main(arguments: list[str]) -> None:
    """Run the named benchmark's `main`."""
    if not arguments or arguments[0] not in BENCHMARKS:
        names = "\n".join(f"  {name:10} {purpose}" for name, purpose in BENCHMARKS.items())
        sys.exit(f"usage: python -m benchmarks NAME [options]\n\n{names}")
    importlib.import_module(f"benchmarks.{arguments[0]}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
