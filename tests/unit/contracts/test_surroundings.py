"""The environment of a child is built from what it needs; what a shell or a platform has set besides stays outside."""

from pathlib import Path

import pytest

from contracts.errors import InvalidInput
from contracts.runtime.surroundings import build_environment, tidy

ROOT = Path(__file__).parents[3]
NEEDED = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "tr_TR.UTF-8",
    "LD_LIBRARY_PATH": "/opt/cuda/lib",
    "PYTHONUNBUFFERED": "1",
}
FOREIGN = {
    **{"WEB_CONCURRENCY": "4", "UVICORN_PORT": "x", "GUNICORN_CMD_ARGS": "--workers 9", "FORWARDED_ALLOW_IPS": "*"},
    **{"MLFLOW_BACKEND_STORE_URI": "mysql://x", "MLFLOW_DEFAULT_ARTIFACT_ROOT": "s3://x", "MLFLOW_TRACKING_URI": "x"},
    **{
        "FLASK_APP": "x",
        "AWS_ACCESS_KEY_ID": "x",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "x",
        "PROMETHEUS_MULTIPROC_DIR": "/x",
    },
    **{"PGHOST": "x", "PGSERVICE": "x", "PGOPTIONS": "-c x=1", "PGTZ": "x", "PGCHANNELBINDING": "require"},
    **{"PYTHONPATH": "/x", "PYTHONHOME": "/x", "PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "x"},
    **{"OMP_NUM_THREADS": "x", "MKL_NUM_THREADS": "x", "MPLBACKEND": "x", "PYTORCH_CUDA_ALLOC_CONF": "x"},
    **{"SSLKEYLOGFILE": "/x/y", "OPENSSL_CONF": "/x", "BASH_ENV": "/x", "PYDANTIC_DISABLE_PLUGINS": "x"},
    **{"TMPDIR": "/nowhere", "TZ": "Nowhere/Nothing", "PYTHONUTF8": "0"},
}


def test_what_a_process_needs_passes_and_nothing_else() -> None:
    built = build_environment(NEEDED | FOREIGN)
    assert built == NEEDED | {"PYTHONUTF8": "1", "TZ": "UTC"}


def test_our_settings_and_the_gpu_pass_to_our_parts_and_not_to_mlflow() -> None:
    given = {"MORROW_WORKERS": "2", "CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "all"}
    assert given.items() <= build_environment(given).items()
    assert not given.keys() & build_environment(given, "mlflow").keys()


def test_variables_of_a_child_itself_win() -> None:
    assert build_environment({"MORROW_PORT": "1"}, own={"MORROW_PORT": "2"})["MORROW_PORT"] == "2"


def test_how_to_log_in_passes_only_with_a_server_of_the_user() -> None:
    """And never where that server is: the URL alone says so."""
    login = {"PGPASSWORD": "x", "PGSSLROOTCERT": "/ca.pem", "MLFLOW_TRACKING_TOKEN": "x"}
    servers = {"MORROW_DATABASE_URL": "postgresql://db/morrow", "MORROW_MLFLOW_URL": "https://mlflow.example"}
    assert not login.keys() & build_environment(login).keys()
    assert login.items() <= build_environment(login | servers).items()
    embedded = {"MORROW_DATABASE_URL": "postgresql+psycopg://morrow@/morrow?host=/tmp/morrow-x"}
    assert not login.keys() & build_environment(login, own=embedded).keys()
    assert not {"PGHOST", "PGSERVICE"} & build_environment(FOREIGN | servers).keys()


def test_a_python_path_passes_if_morrow_is_found_by_it() -> None:
    assert build_environment({"PYTHONPATH": f"/x:{ROOT}"})["PYTHONPATH"] == f"/x:{ROOT}"


def test_a_library_asks_the_one_server_directly_or_through_the_proxy_that_it_needs() -> None:
    proxies = {"HTTP_PROXY": "http://proxy:3128", "https_proxy": "http://proxy:3129", "ALL_PROXY": "socks5://x"}
    near = build_environment(proxies, own={"MORROW_MLFLOW_URL": "http://mlflow:5000"})
    assert {name: value for name, value in near.items() if "proxy" in name.lower()} == {"no_proxy": "mlflow"}
    far = build_environment(proxies, own={"MORROW_MLFLOW_URL": "https://mlflow.example"})
    assert {name: value for name, value in far.items() if "proxy" in name.lower()} == {
        "https_proxy": "http://proxy:3129"
    }
    with pytest.raises(InvalidInput, match="ALL_PROXY: names a socks5 proxy"):
        build_environment({"ALL_PROXY": "socks5://x"}, own={"MORROW_MLFLOW_URL": "https://mlflow.example"})


def test_values_lose_quotation_marks_and_service_links_are_passed_over() -> None:
    environment = {
        "MORROW_HOME": '"/data/morrow"',
        "MORROW_URL": " 'http://api:8000' ",
        "MORROW_PUBLIC": '["docs"]',
        "MORROW_PORT": "tcp://10.0.0.1:8000",
        "MORROW_PORT_8000_UDP": "udp://10.0.0.1:8000",
        "OTHER": '"x"',
    }
    passed_over = tidy(environment)
    assert environment == {
        "MORROW_HOME": "/data/morrow",
        "MORROW_URL": "http://api:8000",
        "MORROW_PUBLIC": '["docs"]',
        "OTHER": '"x"',
    }
    assert {one.variable for one in passed_over} == {"MORROW_PORT", "MORROW_PORT_8000_UDP"}
    assert all("Kubernetes" in one.reason for one in passed_over)
