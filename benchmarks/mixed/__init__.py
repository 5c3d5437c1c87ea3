"""Everything at once on the real processes: who asks and posts, what they hear, and whether all of it was right.

`clients` ask and post; `ledger` holds what they sent to what the store has; `answers` holds what they heard to the
graphs of the versions that said it; `story` retrains, closes, corrects and rolls back meanwhile. `tests/e2e` let the
same clients go on while they break the processes.
"""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks mixed`; see `benchmarks.mixed.command`."""
    from benchmarks.mixed.command import main as run

    run(arguments)
