"""All checks of `morrow doctor`, one after the other, and how their findings are printed."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

import httpx
from rich.console import Console

from cli.client.api import open_api
from cli.client.output import print_json
from cli.doctor.database import examine_store
from cli.doctor.finding import Finding, Level, ok, warn
from cli.doctor.kept_fits import examine_kept_fits
from cli.doctor.machine import examine_machine
from cli.doctor.registry import examine_first_start, examine_registry
from cli.doctor.replica import examine_replica
from cli.errors import Unreachable
from cli.local.stack_file import read_stack_file
from service.settings import ServiceSettings
from trainer.settings import TrainerSettings

COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


def print_findings(url: str | None, *, as_json: bool) -> bool:
    """Print each finding as it comes; returns whether none fails. `url` None is the local API."""
    console, findings = Console(highlight=False, soft_wrap=True), []
    for finding in examine(url):
        findings.append(finding)
        if not as_json:
            _print(console, finding)
    is_well = all(finding.level != "fail" for finding in findings)
    if as_json:
        print_json({"ok": is_well, "findings": [asdict(finding) for finding in findings]})
    return is_well


def examine(url: str | None) -> Iterator[Finding]:
    """Check machine, database, MLflow and API, as the environment and a running `morrow up` name them."""
    service, trainer = ServiceSettings(), TrainerSettings()
    stack = read_stack_file(service.home.expanduser())
    tasks: list[str] = []
    yield from examine_machine(trainer, datetime.now(UTC))
    yield from examine_store(service, tasks.append)
    yield from examine_replica(trainer)
    yield from examine_kept_fits(trainer)
    if service.mlflow_url is None:
        yield from examine_first_start(service.home.expanduser())
    yield from examine_registry(service.mlflow_url or (stack.mlflow if stack else None), tasks)
    yield examine_api(url or (stack.api if stack else f"http://127.0.0.1:{service.port}"))


def examine_api(url: str) -> Finding:
    """Whether the API answers, and has a model for every task."""
    try:
        with open_api(url) as api:
            answer = api.get("/readyz")
    except (httpx.TransportError, Unreachable):
        return warn("API", f"{url} does not answer", "run `morrow up` or `morrow serve`; or set MORROW_URL")
    if answer.is_success:
        return ok("API", f"{url} is ready")
    return warn("API", f"{url} answers, but not for every task: {answer.text.strip()[:300]}", "see `morrow task show`")


def _print(console: Console, finding: Finding) -> None:
    console.print(f"{finding.level:<5}", style=COLOURS[finding.level], end="")
    console.print(f"{finding.subject}: {finding.words}", markup=False)
    if finding.remedy is not None:
        console.print(f"     → {finding.remedy}", markup=False)
