"""Serving compared with a FastAPI no-op, a bare constant, and `mlflow models serve` of the same version."""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks serving`; see `benchmarks.serving.command`."""
    from benchmarks.serving.command import main as run

    run(arguments)
