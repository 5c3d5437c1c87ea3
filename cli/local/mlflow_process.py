"""`mlflow server` in one process, which takes half of its memory and of its start; the arguments are those of `mlflow`.

MLflow starts uvicorn in a second process, which loads all of MLflow once more, while the first one waits for its end.
Here the first goes on as uvicorn. Nearly all that it loads stays: looking for garbage among it while it loads, and
taking it apart at the end, would take as long as half of the loading itself.
"""

import atexit
import gc
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any


def run() -> None:
    """Carry out the command line, to the end of the server."""
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)

    import uvicorn
    from mlflow.cli import cli

    server: Any = importlib.import_module("mlflow.server")

    def go_on(command: Sequence[str], *, extra_env: Mapping[str, str], **_how: object) -> None:
        """Become `python -m uvicorn …`, in the environment that MLflow would start it in."""
        os.environ.update(extra_env)
        importlib.reload(server)  # it makes the app by what the environment says
        uvicorn.main(command[3:])

    server._exec_cmd = go_on
    cli()


if __name__ == "__main__":
    run()
