"""Ingest compared with plain routes that write through SQLAlchemy, and with pgbench."""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks ingest`; see `benchmarks.ingest.command`."""
    from benchmarks.ingest.command import main as run

    run(arguments)
