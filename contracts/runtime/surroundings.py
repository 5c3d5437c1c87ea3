"""The environment of a process of Morrow: built from an allow-list, never inherited.

A shell, a platform or another program on the machine sets variables that libraries of ours read: WEB_CONCURRENCY,
PGSERVICE, MLFLOW_BACKEND_STORE_URI, PYTHONWARNINGS. None of them may start, stop or change a process of ours. So a
child gets the variables that are named here, and an entry process drops all others from its own environment before it
imports anything that could read them (`docs/decisions/0022-built-environments.md`).
"""

import os
import re
import signal
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts.runtime.object_stores import http_address, login_variables
from contracts.runtime.proxies import PROXY_VARIABLES, name_proxies
from contracts.runtime.python_process import find_start_folder, is_harmless, restart

PREFIX = "MORROW_"
Part = Literal["morrow", "mlflow"]

# What the system, the terminal and the loader of libraries need.
_SYSTEM = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TZDIR", "LD_LIBRARY_PATH"),
    *("LD_PRELOAD", "TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "MPLCONFIGDIR"),
}
_SYSTEM_PREFIXES = ("LC_", "MALLOC_", "XDG_", "DYLD_")
# What the API, the trainer and commands read besides.
_OURS = {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}
_OUR_PREFIXES = (PREFIX, "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "HSA_")
_COMPLETION = {
    "_MORROW_COMPLETE",
    "COMP_WORDS",
    "COMP_CWORD",
    "_TYPER_COMPLETE_ARGS",
    "_TYPER_COMPLETE_WORD_TO_COMPLETE",
}
# How to log in to a server that the settings name. Where it is, and how a session behaves, the settings alone say.
_DATABASE_LOGIN = {
    *("PGPASSWORD", "PGPASSFILE", "PGREQUIREAUTH", "PGREQUIREPEER", "PGCHANNELBINDING", "PGSSLMODE", "PGSSLROOTCERT"),
    *("PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLSNI", "PGSSLCERTMODE", "PGSSLNEGOTIATION"),
    *("PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION", "PGGSSENCMODE", "PGGSSDELEGATION", "PGKRBSRVNAME"),
    *("PGGSSLIB", "KRB5CCNAME", "KRB5_CONFIG"),
}
_MLFLOW_LOGIN = {"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"}
# Kubernetes names a service `morrow` to every container of its namespace: MORROW_PORT=tcp://10.0.0.1:8000 and others.
_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://\S*", re.IGNORECASE)


@dataclass(frozen=True)
class PassedOver:
    """A variable with our prefix that does not count, and why."""

    variable: str
    value: str
    reason: str


def build_environment(
    given: Mapping[str, str], part: Part = "morrow", own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a child: what passes of `given`, and the child's `own` variables.

    `mlflow` is the server of `morrow up`, which takes no setting from outside. Raises InvalidInput if the child needs a
    proxy that cannot be used.
    """
    built = _select(given, part) | {"PYTHONUTF8": "1", "TZ": "UTC"} | dict(own or {})
    if part == "morrow" and (address := built.get(f"{PREFIX}MLFLOW_URL")):
        built |= name_proxies(given, address, *_find_store_address(built))
        if "SSL_CERT_FILE" in built:  # MLflow's client reads the other one
            built.setdefault("REQUESTS_CA_BUNDLE", built["SSL_CERT_FILE"])
    return built


def settle() -> list[PassedOver]:
    """Make this process independent of its surroundings: call it first in an entry process.

    Variables that are not ours leave the environment; values of ours lose quotation marks around them. If Python itself
    has read a variable that is not ours, the process starts again without it. Returns variables that were passed over.
    """
    _reset_signals()
    if (folder := find_start_folder()) is not None:
        os.chdir(folder)
    # A command may name a server by an option, so logins and proxies stay until it is known which server is meant.
    undecided = _COMPLETION | _MLFLOW_LOGIN | PROXY_VARIABLES | {"TZ"}
    kept = _select(os.environ, "morrow") | {name: os.environ[name] for name in undecided if name in os.environ}
    if any(name.startswith("PYTHON") and name not in kept for name in os.environ):
        restart(kept)
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    return tidy(os.environ)


def _reset_signals() -> None:
    """Undo what a parent did to signals that we need; those that it ignores on purpose, such as SIGHUP, stay ignored.

    While SIGCHLD is ignored, every child seems to succeed, and initdb fails. A blocked SIGTERM stops nothing.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def tidy(environment: MutableMapping[str, str]) -> list[PassedOver]:
    """Strip blanks and quotation marks from the values with our prefix, and remove values that are not ours."""
    passed_over = []
    for name in [name for name in environment if name.startswith(PREFIX)]:
        environment[name] = unquote_value(environment[name])
        if is_service_link(environment[name]):
            reason = (
                "Kubernetes sets it for a service called morrow; enableServiceLinks: false in the pod keeps it away"
            )
            passed_over.append(PassedOver(name, environment.pop(name), reason))
    return passed_over


def unquote_value(value: str) -> str:
    """The value as meant: `docker run --env-file` and systemd pass quotation marks that a shell would remove."""
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1].strip() if is_quoted else value


def is_service_link(value: str) -> bool:
    """Whether Kubernetes wrote this value."""
    return _SERVICE_LINK.fullmatch(value) is not None


def _select(given: Mapping[str, str], part: Part) -> dict[str, str]:
    """The variables that pass unchanged."""
    kept = {
        name: value
        for name, value in given.items()
        if _is_of_system(name) or is_harmless(name, value) or (part == "morrow" and _is_ours(name, given))
    }
    if "TMPDIR" in kept and not _is_folder(kept["TMPDIR"]):
        del kept["TMPDIR"]
    return kept


def _is_of_system(name: str) -> bool:
    return name in _SYSTEM or name.startswith(_SYSTEM_PREFIXES)


def _is_ours(name: str, given: Mapping[str, str]) -> bool:
    if name in _DATABASE_LOGIN:
        return bool(given.get(f"{PREFIX}DATABASE_URL"))
    if name in _MLFLOW_LOGIN:
        return bool(given.get(f"{PREFIX}MLFLOW_URL"))
    if name in login_variables(unquote_value(given.get(f"{PREFIX}FITS_URL", ""))):
        return True
    return name in _OURS or name.startswith(_OUR_PREFIXES)


def _find_store_address(given: Mapping[str, str]) -> list[str]:
    """The server of the object store that the settings name, if it is one; the settings say if it is no address."""
    url = given.get(f"{PREFIX}FITS_URL", "")
    address = http_address(url, given) if login_variables(url) else None
    return [] if address is None else [address]


def _is_folder(place: str) -> bool:
    return Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK)
