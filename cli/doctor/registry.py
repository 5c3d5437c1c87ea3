"""What `morrow doctor` finds in MLflow: that it answers, its version, its clock, and each champion's files."""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import httpx

from cli.doctor.finding import Finding, fail, judge_skew, ok, warn
from contracts.errors import ArtefactRefused, Unavailable
from contracts.manifest import read_manifest
from contracts.runtime.addresses import split_credentials
from service.models.registry import download_version, find_champion_version, make_client


def examine_registry(mlflow_url: str | None, tasks: Sequence[str]) -> Iterator[Finding]:
    """All of it, for the champions of these tasks."""
    if mlflow_url is None:
        remedy = "`morrow up` starts one; or set MORROW_MLFLOW_URL"
        yield warn("MLflow", "no server is named: nothing can be released or followed", remedy)
        return
    place, _ = split_credentials(mlflow_url)
    with make_client(mlflow_url) as client:
        try:
            answer = client.get("/version")
            answered_at = datetime.now(UTC)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            remedy = "start it, or mend MORROW_MLFLOW_URL; 403 means that its --allowed-hosts lacks this name"
            yield fail("MLflow", f"{place} does not answer: {error}", remedy)
            return
        yield judge_version(str(place), answer.text.strip(), _wanted_version())
        if "date" in answer.headers:
            # HTTP tells whole seconds: on average the clock showed half a second more.
            yield judge_skew("MLflow's clock", parsedate_to_datetime(answer.headers["date"]) - answered_at)
        for task in tasks:
            yield _examine_champion(client, task)


def judge_version(place: str, found: str, wanted: str | None) -> Finding:
    """The server's version beside the one that this Morrow is tested with."""
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
    return ok(subject, f"version {version}: every file is as its manifest says")
