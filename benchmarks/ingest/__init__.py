"""Ingest beside its yardsticks: routes that write through SQLAlchemy as most would, and pgbench."""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks ingest`; see `benchmarks.ingest.command`."""
    from benchmarks.ingest.command import main as run

    run(arguments)
