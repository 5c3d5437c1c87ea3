"""Everything at once on the real processes: clients post and ask, and every answer is checked.

`clients` post and ask. `ledger` compares what they sent with what the store holds. `answers` compares what they were
heard with the graphs of the versions that answered. Meanwhile `story` retrains, closes horizons, corrects and rolls
back. The end-to-end tests run the same clients while they break the processes.
"""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks mixed`; see `benchmarks.mixed.command`."""
    from benchmarks.mixed.command import main as run

    run(arguments)
