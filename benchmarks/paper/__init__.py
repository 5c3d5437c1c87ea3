"""The paper's experiments: its data sets, every method it compares, and its tables beside ours."""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks paper`; see `benchmarks.paper.command`."""
    from benchmarks.paper.command import main as run

    run(arguments)
