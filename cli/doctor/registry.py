"""The checks of MLflow: its answer, its version, its clock, and the files of each champion."""

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import httpx

from cli.doctor.finding import Finding, fail, judge_skew, ok, warn
from cli.local.mlflow_server import is_unfinished
from contracts.errors import ArtefactRefused, Unavailable
from contracts.manifest import read_manifest
from contracts.registry_answers import PROBE, explain_status
from contracts.runtime.addresses import split_credentials
from contracts.runtime.proxies import find_proxy
from service.models.registry.client import download_version, find_champion_version, make_client


def examine_registry(mlflow_url: str | None, tasks: Sequence[str]) -> Iterator[Finding]:
    """Run all checks of this module, for the champions of these tasks."""
    if mlflow_url is None:
        remedy = "run `morrow up`, which starts one; or set MORROW_MLFLOW_URL"
        yield warn("MLflow", "no server is named, so no version can be released or loaded", remedy)
        return
    place, _ = split_credentials(mlflow_url)
    with make_client(mlflow_url) as client:
        try:
            answer = client.get("/version")
            answered_at = datetime.now(UTC)
            answer.raise_for_status()
            probe = client.get(PROBE)
        except httpx.HTTPError as error:
            proxy = find_proxy(place, os.environ)
            through = "" if proxy is None else ", asked through the proxy that this environment names,"
            yield fail("MLflow", f"{place}{through} does not answer: {error}", "start it, or correct MORROW_MLFLOW_URL")
            return
        if probe.status_code != httpx.codes.OK:
            words, _, remedy = explain_status(probe.status_code, probe.text).removesuffix(".").partition(": ")
            yield fail("MLflow", f"{place}: {words}", remedy or "look at MLflow's log")
            return
        yield judge_version(str(place), answer.text.strip(), _wanted_version())
        if "date" in answer.headers:
            # HTTP dates are whole seconds, on average half a second behind the clock.
            yield judge_skew("MLflow's clock", parsedate_to_datetime(answer.headers["date"]) - answered_at)
        for task in tasks:
            yield _examine_champion(client, task)


def examine_first_start(home: Path) -> Iterator[Finding]:
    """Whether the MLflow of `morrow up` has a database that its first start left half built."""
    folder = home / "mlflow"
    if is_unfinished(folder):
        words = f"{folder / 'mlflow.db'} is empty: the first start of MLflow is under way, or was cut short"
        yield warn("MLflow", words, "if `morrow up` does not run, start it: it builds this database again")


def judge_version(place: str, found: str, wanted: str | None) -> Finding:
    """Compare the server's version with the one that this Morrow is tested with."""
    if wanted is None or found == wanted:
        return ok("MLflow", f"{place}, version {found}")
    words = f"{place}, version {found}; this Morrow is tested with {wanted}"
    return warn("MLflow", words, f"run mlflow=={wanted}")


def _wanted_version() -> str | None:
    try:
        named = requires("morrow") or []
    except PackageNotFoundError:
        return None
    pins = (one.partition(";")[0].strip().partition("==") for one in named)
    return next((version for name, _, version in pins if name == "mlflow"), None)


def _examine_champion(client: httpx.Client, task: str) -> Finding:
    subject = f"champion {task}"
    try:
        version = find_champion_version(client, task)
        if version is None:
            return ok(subject, "none yet")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            download_version(client, task, version, folder, stopping=threading.Event())
            read_manifest(folder)
    except Unavailable as error:
        return fail(subject, str(error), "look at MLflow's log")
    except ArtefactRefused as error:
        return fail(subject, f"version {version}: {error}", f'morrow rollback {task} --reason "its files are damaged"')
    return ok(subject, f"version {version}: every file matches its manifest")
