"""An MLflow server as Morrow runs it: one process, which spares what MLflow would spend on its start."""

import gc
import subprocess
import sys

import psutil

from cli.local.mlflow_main import forget_strangers

BEFORE_MLFLOW = """
import gc, runpy, sys
sys.modules["mlflow"] = None
try:
    runpy.run_module("cli.local.mlflow_main", run_name="__main__")
except ModuleNotFoundError:
    print(gc.isenabled(), gc.get_threshold()[0])
"""


def test_garbage_is_looked_for_seldom_before_anything_of_mlflow_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE_MLFLOW], capture_output=True, text=True, check=True)
    is_enabled, threshold = done.stdout.split()
    assert is_enabled == "True"
    assert int(threshold) > 10 * gc.get_threshold()[0]


def test_the_process_that_was_started_is_the_one_that_serves(mlflow_url: str) -> None:
    port = int(mlflow_url.rpartition(":")[2])
    listening = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
    (server,) = {psutil.Process(one.pid) for one in listening if one.laddr and one.laddr.port == port}
    assert "cli.local.mlflow_main" in server.cmdline()
    assert server.children() == []


def test_variables_of_other_servers_and_service_links_are_forgotten() -> None:
    ours = {"MLFLOW_BACKEND_STORE_URI": "sqlite://", "MLFLOW_FLASK_SERVER_SECRET_KEY": "x", "PATH": "/bin"}
    strange = {"WEB_CONCURRENCY": "4", "UVICORN_PORT": "1", "FLASK_APP": "x", "MLFLOW_PORT": "tcp://10.0.0.1:5000"}
    environment = ours | strange
    forget_strangers(environment)
    assert environment == ours
