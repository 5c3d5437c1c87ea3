"""The paper's experiments: its data sets, every method that it compares, and its tables with our figures."""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks paper`; see `benchmarks.paper.command`."""
    from benchmarks.paper.command import main as run

    run(arguments)
