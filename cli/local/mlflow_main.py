"""Run `mlflow server`, with the options of `mlflow`, in one process: it starts sooner and takes half the memory.

MLflow starts uvicorn as a second process, which loads all of MLflow again, and then only waits for it. Here the first
process goes on as uvicorn. MLflow has no public way to do that, so this module replaces `mlflow.server._exec_cmd`; a
test holds that MLflow is pinned to an exact version. The image of MLflow runs this file alone, without Morrow.
"""

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any


def run() -> None:
    """Carry out the command line until the server ends."""
    forget_strangers(os.environ)
    # Nearly all that MLflow loads stays. Collecting it during the load and at exit would take half as long again.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)

    import uvicorn
    from mlflow.cli import cli

    server: Any = importlib.import_module("mlflow.server")

    def become_uvicorn(command: Sequence[str], *, extra_env: Mapping[str, str], **_options: object) -> None:
        """Go on as `python -m uvicorn …`, in the environment that MLflow wants for it."""
        os.environ.update(extra_env)
        importlib.reload(server)  # the environment decides which app this module makes
        context = uvicorn.main.make_context("uvicorn", list(command[3:]))
        context.params["app_dir"] = None  # by default uvicorn puts the working directory on the import path
        uvicorn.main.invoke(context)
        sys.exit()

    server._exec_cmd = become_uvicorn
    cli()


def forget_strangers(environment: MutableMapping[str, str]) -> None:
    """Remove what platforms set for other servers, and what Kubernetes sets for a service called `mlflow`.

    MLflow and uvicorn take any option from a variable of its name.
    """
    for name, value in list(environment.items()):
        if name.startswith(("UVICORN_", "GUNICORN_", "FLASK_")) or value.startswith("tcp://"):
            del environment[name]
    for name in ("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS"):
        environment.pop(name, None)


if __name__ == "__main__":
    run()
