"""Whatever a shell, a platform or another program has set: Morrow starts, trains, answers and stops as without it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cli.local.stack import HOST, free_port
from contracts.runtime.http_clients import client_options
from tests.e2e.containers import SERVICES
from tests.e2e.morrow_command import MORROW
from tests.e2e.test_shadowed_modules import DECOY, train_and_ask
from tests.e2e.test_up import GONE_SECONDS, running

HOSTILE = {
    **{"HTTP_PROXY": "http://127.0.0.1:1", "https_proxy": "http://x:port", "ALL_PROXY": "socks5://127.0.0.1:1"},
    **{"WEB_CONCURRENCY": "4", "UVICORN_PORT": "1", "UVICORN_RELOAD": "true", "FORWARDED_ALLOW_IPS": "x"},
    **{"GUNICORN_CMD_ARGS": "--bind x", "FLASK_APP": "x", "PROMETHEUS_MULTIPROC_DIR": "/nowhere"},
    **{"PGCHANNELBINDING": "require", "PGSSLMODE": "verify-full", "PGHOST": "nowhere", "PGHOSTADDR": "10.0.0.1"},
    **{"PGPORT": "1", "PGDATABASE": "x", "PGUSER": "x", "PGSERVICE": "nowhere", "PGOPTIONS": "-c no.such=1 -x"},
    **{"PGREQUIREAUTH": "scram-sha-256", "PGREQUIREPEER": "x", "PGTARGETSESSIONATTRS": "standby", "PGTZ": "Nowhere"},
    **{"PGDATESTYLE": "Nowhere", "PGCLIENTENCODING": "LATIN1", "PGAPPNAME": "x", "PGCONNECT_TIMEOUT": "x"},
    **{"PGSSLMINPROTOCOLVERSION": "x", "PGGSSENCMODE": "require", "PGPASSFILE": "/nowhere"},
    **{"MLFLOW_DEFAULT_ARTIFACT_ROOT": "s3://x", "MLFLOW_BACKEND_STORE_URI": "mysql://x", "MLFLOW_WORKERS": "4"},
    **{"MLFLOW_ARTIFACTS_DESTINATION": "s3://x", "MLFLOW_SERVER_ALLOWED_HOSTS": "x", "MLFLOW_STATIC_PREFIX": "/x"},
    **{"MLFLOW_TRACKING_URI": "databricks", "MLFLOW_TRACKING_TOKEN": "x", "MLFLOW_TRACKING_USERNAME": "x"},
    **{
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "x",
        "MLFLOW_EXPERIMENT_ID": "9",
        "MLFLOW_RUN_ID": "x",
        "MLFLOW_AUTH_CONFIG_PATH": "/x",
    },
    **{
        "MLFLOW_ENABLE_ASYNC_LOGGING": "true",
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "x",
        "MLFLOW_REGISTRY_URI": "x",
    },
    **{"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "ascii"},
    **{"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "-3", "OPENBLAS_NUM_THREADS": "x", "KMP_AFFINITY": "x"},
    **{"MPLBACKEND": "nosuch", "PYTORCH_CUDA_ALLOC_CONF": "x", "TORCH_LOGS": "x", "OTEL_TRACES_EXPORTER": "x"},
    **{"TMPDIR": "/nowhere", "SSL_CERT_FILE": "/nowhere", "REQUESTS_CA_BUNDLE": "/nowhere", "SSLKEYLOGFILE": "/x/y"},
    **{"LC_ALL": "xx_XX.UTF-8", "LANG": "tr_TR.ISO-8859-9", "TZ": "Nowhere/Nothing", "BASH_ENV": "/nowhere"},
}

# With a server of the user, these count.
LOGIN = {"PGCHANNELBINDING", "PGSSLMODE", "PGREQUIREAUTH", "PGREQUIREPEER", "PGSSLMINPROTOCOLVERSION", "PGGSSENCMODE"}


def decoys(folder: Path) -> Path:
    """A folder of modules with names of libraries that raise once they are imported."""
    made = folder / "decoys"
    made.mkdir()
    for module in ("typer", "pydantic", "uvicorn", "numpy", "torch", "mlflow", "psycopg"):
        (made / f"{module}.py").write_text(DECOY)
    return made


def test_up_serves_trains_and_stops_in_a_hostile_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is removed meanwhile, and PYTHONPATH leads to modules that raise.

    The parent ignored SIGCHLD, as some supervisors do, and blocked the signals that stop Morrow.
    """
    gone, home, port = tmp_path / "gone", tmp_path / "home", free_port()
    gone.mkdir()
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(decoys(tmp_path)))
    script = (
        "import os, signal, sys; os.rmdir(os.getcwd()); signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM]); "
        f"os.execv({sys.executable!r}, {MORROW!r} + sys.argv[1:])"
    )
    command = [sys.executable, "-c", script]
    settings = {"port_8000_tcp": "tcp://10.0.0.1:8000", "workers": '"2"', "threads": "1", "service_host": "10.0.0.1"}
    with (
        running(home, port, command=command, cwd=gone, **settings) as (process, printed),
        httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60, **client_options(f"http://{HOST}")) as api,
    ):
        assert "Ctrl-C stops everything" in printed, printed
        assert "MORROW_PORT_8000_TCP=tcp://10.0.0.1:8000 is passed over" in printed
        train_and_ask(api)
        process.send_signal(signal.SIGINT)
        assert process.wait(GONE_SECONDS) == 0
    logs = "".join(log.read_text() for log in (home / "logs").iterdir())
    assert "decoy" not in logs
    assert "Traceback" not in logs


@pytest.mark.parametrize("module", ["service", "trainer", "cli.main", "cli.entry"])
def test_an_entry_process_starts_again_without_what_python_has_read(module: str, tmp_path: Path) -> None:
    """Modules of PYTHONPATH raise; without docstrings no command has a help text, and no error a sentence."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MORROW_", "PYTHON"))} | {
        "PYTHONPATH": str(decoys(tmp_path)),
        "PYTHONOPTIMIZE": "2",
        "PYTHONWARNINGS": "error",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *(["task", "--help"] if module.startswith("cli") else [])],
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "decoy" not in done.stderr
    assert "Traceback" not in done.stderr
    if module.startswith("cli"):
        assert done.returncode == 0, done.stderr
        assert "Define" in done.stdout
    else:
        assert (done.returncode, "MORROW_DATABASE_URL: is not set" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"MORROW_URL": "http://127.0.0.1:1"}, "The API at http://127.0.0.1:1 does not answer"),
        ({"MORROW_URL": "127.0.0.1:8000"}, "write http://127.0.0.1:8000"),
        ({"MORROW_URL": "ftp://x"}, "only http:// and https:// can be asked"),
        ({"MORROW_URL": "http://127.0.0.1:80x0"}, "has the port '80x0'"),
        ({"MORROW_URL": "http://no-such-host.invalid"}, "does not answer"),
        ({"MORROW_URL": "http://far.example", "ALL_PROXY": "socks5://x:1"}, "ALL_PROXY: names a socks5 proxy"),
        ({"MORROW_URL": "https://far.example", "SSL_CERT_FILE": "/nowhere"}, "SSL_CERT_FILE: /nowhere cannot be read"),
        ({"MORROW_URL": "http://127.0.0.1:1", "SSL_CERT_FILE": "/nowhere"}, "does not answer"),
        ({"MORROW_URL": "http://127.0.0.1:1", "ALL_PROXY": "socks5://x:1"}, "does not answer"),
        ({"MORROW_KEY": "schlüssel"}, "MORROW_KEY: holds a character that no key has"),
        ({"MORROW_KEY": "two words"}, "MORROW_KEY: holds a character that no key has"),
        ({"MORROW_KEY": " key\n", "MORROW_URL": "http://127.0.0.1:1"}, "The API at http://127.0.0.1:1 does not answer"),
    ],
)
def test_a_command_that_cannot_reach_the_api_says_so_in_a_sentence(variables: dict[str, str], words: str) -> None:
    _fails_in_a_sentence(["task", "show", "x"], variables, words)


@pytest.mark.parametrize(
    "arguments", [["cycle", "x"], ["rollback", "x", "--reason", "r"], ["override", "x", "--reason", "r"]]
)
def test_every_command_says_so_alike(arguments: list[str]) -> None:
    nowhere = {"MORROW_URL": "http://127.0.0.1:1"}
    _fails_in_a_sentence(arguments, nowhere, "The API at http://127.0.0.1:1 does not answer")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://morrow:secret@127.0.0.1:1/morrow", "does not answer"),
        ("postgresql+asyncpg://morrow:secret@127.0.0.1:1/morrow", "MORROW_DATABASE_URL: names the driver 'asyncpg'"),
        ("postgresql://morrow:secret@127.0.0.1:54x2/morrow", "MORROW_DATABASE_URL: has the port '54x2'"),
        ("mysql://morrow:secret@127.0.0.1/morrow", "MORROW_DATABASE_URL: begins with mysql://"),
        ("postgresql://morrow:secret@no-such-host.invalid/morrow", "is not known here"),
    ],
)
@pytest.mark.parametrize("arguments", [["migrate"], ["keys", "list"], ["backtest", "x"]], ids=lambda one: one[0])
def test_a_command_that_cannot_reach_the_database_says_so_in_a_sentence(
    arguments: list[str], url: str, words: str
) -> None:
    _fails_in_a_sentence(arguments, {"MORROW_DATABASE_URL": url}, words)


def test_a_command_that_cannot_reach_mlflow_says_so_in_a_sentence() -> None:
    _fails_in_a_sentence(["runs", "prune"], {"MORROW_MLFLOW_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1")


def test_what_answers_and_is_not_morrow_is_named(mlflow_url: str) -> None:
    _fails_in_a_sentence(["task", "show"], {"MORROW_URL": f"{mlflow_url}/health?"}, "correct MORROW_URL")


def test_a_container_of_the_api_is_healthy_whatever_proxy_docker_names(api: str) -> None:
    _, *command = SERVICES["api"]["healthcheck"]["test"]
    command = [word.replace("http://127.0.0.1:8000", api) for word in command]
    assert api in command[-1]
    proxies = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    subprocess.run(command, env=os.environ | proxies, check=True, timeout=60)


def test_variables_of_libpq_do_not_move_a_named_database(database_url: str, tmp_path: Path) -> None:
    """From a working directory that was removed, with quotation marks around the address."""
    moving = {name: value for name, value in HOSTILE.items() if name.startswith("PG") and name not in LOGIN}
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.rmdir(os.getcwd()); os.execv({sys.executable!r}, {[*MORROW, 'keys', 'list', '--json']!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=gone,
        env=os.environ | moving | {"MORROW_DATABASE_URL": f'"{database_url}"'},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"keys": []}


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    _fails_in_a_sentence(["up", "--port", str(free_port())], {"MORROW_HOME": str(home)}, f"{home} cannot be made")


def _fails_in_a_sentence(arguments: list[str], variables: dict[str, str], words: str) -> None:
    done = subprocess.run(
        [*MORROW, *arguments], env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert words in done.stderr.replace("\n", " "), done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_a_process_sees_how_its_children_ended_and_can_be_stopped_whatever_its_parent_did_to_signals() -> None:
    look = (
        "from contracts.runtime.entry import begin; begin(); import signal, subprocess; "
        "print(subprocess.run(['false']).returncode, len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    )
    script = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]); "
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', sys.argv[1]])"
    )
    seen = subprocess.run([sys.executable, "-c", script, look], capture_output=True, text=True, check=True)
    assert seen.stdout == "1 0\n"
