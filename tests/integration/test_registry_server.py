"""What the processes of an MLflow server are told before they load anything."""

import gc
import os
import subprocess
import sys

from cli.registry_server import server_environment


def test_garbage_is_looked_for_seldom_in_every_process_of_the_server() -> None:
    """In those that it starts by itself too, which is why the environment says it."""
    said = "import gc; print(gc.isenabled(), gc.get_threshold()[0])"
    again = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {said!r}], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", again],
        env=os.environ | server_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    is_enabled, threshold = done.stdout.split()
    assert is_enabled == "True"
    assert int(threshold) > 10 * gc.get_threshold()[0]
