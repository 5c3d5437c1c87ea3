"""The routes of releases: the history, rollback and override.

A rollback or an override is recorded with actor and reason in the transaction that makes it. That transaction locks the
task's row, so no cycle and no other request can cross it.
"""

from datetime import UTC, datetime

import httpx
from fastapi import APIRouter, Depends
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, from_micros, to_micros
from contracts.errors import Conflict, Fault, InvalidInput, NotFound, Unavailable
from contracts.verdict import BoundOverride, Rollback, to_json
from service.admin import answers
from service.admin.cycles import describe_cycle
from service.database import Store
from service.models.registry.client import find_champion_version, move_alias
from service.settings import ServiceSettings
from service.validation.values import json_moment, json_text
from service.web.auth import actor_of
from service.web.bodies import read_body
from service.web.fields import Rule, json_actor, json_id, json_reason, read_fields
from service.web.parameters import TaskInPath, takes_only
from store.cycles.ledger import is_releasing
from store.cycles.requests import override_cycle
from store.releases import (
    CHAMPION_ACTIONS,
    Release,
    find_former,
    list_readable_releases,
    list_releases,
    read_overlay,
    record_release,
)
from store.tasks.catalog import Schema, find_live_task, find_task, lock_task


def releases_router(store: Store, client: httpx.Client | None, settings: ServiceSettings) -> APIRouter:
    """The routes below /tasks/{task} that list, roll back and override; `client` calls the registry."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])

    @router.get("/tasks/{task}/releases", summary="History of releases", response_description="The releases")
    async def get_releases(name: TaskInPath) -> Response:
        """Newest first; at most 1000."""
        found = await store.run(
            lambda connection: list_readable_releases(connection, find_task(connection, name).task_id)
        )
        return answers.respond(answers.Releases([describe_release(row) for row in found.rows], found.faults))

    @router.post(
        "/tasks/{task}/rollback",
        summary="Roll back",
        response_description="The version that answers from now on",
        responses={409: {"description": "The version is the champion already, or a cycle is releasing one"}},
    )
    async def post_rollback(name: TaskInPath, request: Request) -> Response:
        """Let `version`, or the champion before the present one, answer again within its own horizon.

        It answers until a newer cutoff is released: a rollback does not stop the next cycle.
        """
        rules: dict[str, Rule] = {"version": json_text, "reason": json_reason, "actor": json_actor}
        given = read_fields(await read_body(request, settings), rules, required=("reason",))
        actor = actor_of(request, given.get("actor"))
        if client is None:
            raise Unavailable("No registry is configured (MORROW_MLFLOW_URL).")
        registry, now = client, datetime.now(UTC)
        version, reason = given.get("version"), given["reason"]
        row = await store.run(
            lambda connection: _roll_back(connection, registry, name, version, actor=actor, reason=reason, now=now),
            [name],
        )
        return answers.respond(answers.ReleaseRecorded(**asdict(describe_release(row)), note=None))

    @router.post(
        "/tasks/{task}/override",
        summary="Overrule a verdict",
        response_description="The bound that holds from now on",
        responses={
            202: {"description": "The held cutoff is trained once more and released in spite of its verdict"},
            409: {"description": "The cycle is not held, a gate holds it, or a newer cutoff has been released"},
        },
    )
    async def post_override(name: TaskInPath, request: Request) -> Response:
        """Set the moment up to which a version is valid, for example to reopen a closed horizon. With `cycle`, release
        the candidate that this cycle held.

        If left out, `version` is the champion, and `valid_until` the later of its present bound and the bound of its
        release. No bound exceeds the longest horizon that the task allows. An override opens no gate: a cycle that a
        gate holds is refused.
        """
        rules: dict[str, Rule] = {
            "version": json_text,
            "valid_until": json_moment,
            "cycle": json_id,
            "reason": json_reason,
            "actor": json_actor,
        }
        given = read_fields(await read_body(request, settings), rules, required=("reason",))
        actor, reason, now = actor_of(request, given.get("actor")), given["reason"], datetime.now(UTC)
        if "cycle" not in given:
            version, until = given.get("version"), given.get("valid_until")
            row, note = await store.run(
                lambda connection: _override_bound(
                    connection, name, version, until, actor=actor, reason=reason, now=now
                ),
                [name],
            )
            return answers.respond(answers.ReleaseRecorded(**asdict(describe_release(row)), note=note))
        if faults := [Fault(field, "does not go with cycle") for field in ("version", "valid_until") if field in given]:
            raise InvalidInput(faults)
        cycle = await store.run(
            lambda connection: override_cycle(
                connection, find_task(connection, name).task_id, given["cycle"], actor=actor, reason=reason, now=now
            ),
            [name],
        )
        return answers.respond(describe_cycle(cycle), 202)

    return router


def describe_release(release: Release) -> answers.Release:
    """A row of the history, without its calibration."""
    return answers.Release(
        action=release.action,
        version=release.version,
        valid_until=format_moment(release.valid_until),
        actor=release.actor,
        reason=release.reason,
        at=format_moment(to_micros(release.at)),
        verdict=None if release.verdict is None else to_json(release.verdict),
    )


def _roll_back(
    connection: Connection,
    client: httpx.Client,
    name: str,
    version: str | None,
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> Release:
    """Write the row, move the alias, then commit: a failure before the alias moves changes nothing.

    If the commit fails, the followers find the moved alias and record it.
    """
    schema = find_live_task(connection, name)
    if schema.registry_name is not None:
        raise Conflict(f"The task is still called {schema.registry_name!r} in MLflow: try again in a few seconds.")
    task_id = schema.task_id
    lock_task(connection, task_id)
    if is_releasing(connection, task_id):
        raise Conflict("A cycle is releasing a version right now: try again when it has ended.")
    champion = find_champion_version(client, name)
    version = version or find_former(connection, task_id, champion)
    if version is None:
        raise Conflict(_say_no_former(connection, task_id, champion))
    released = list_releases(connection, task_id, version=version, actions=["release"], limit=1)
    overlay = read_overlay(connection, task_id, version)
    if not released or overlay is None:
        raise NotFound(f"Version {version} was never released for this task.")
    if version == champion:
        raise Conflict(f"Version {version} is the champion already.")
    row = record_release(
        connection,
        task_id,
        version,
        action="rollback",
        valid_until=overlay.valid_until,
        actor=actor,
        reason=reason,
        now=now,
        verdict=Rollback(champion),
    )
    try:
        move_alias(client, name, version)
    except Unavailable:
        # The registry may have moved it: its response was lost, or came too late.
        if find_champion_version(client, name) != version:
            raise
    return row


def _say_no_former(connection: Connection, task_id: int, champion: str | None) -> str:
    """Why a rollback without a version finds none, and which versions may be named instead."""
    released = list_releases(connection, task_id, actions=["release"], with_calibration=False)
    others = list(dict.fromkeys(row.version for row in released if row.version != champion))
    if champion is None:
        state = "No version has been released yet, so there is nothing to roll back"
    else:
        state = f"Version {champion} is the champion, and no version was champion before it was released"
    if not others:
        return f"{state}: there is nothing to roll back to. A cycle releases a new version: morrow cycle TASK."
    return f"{state}. Name the version that must answer, with --version or as version: {', '.join(others[:10])}."


def _override_bound(
    connection: Connection,
    name: str,
    version: str | None,
    valid_until: int | None,
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> tuple[Release, str | None]:
    """The row, and a note if the bound is what it was before."""
    schema = find_live_task(connection, name)
    lock_task(connection, schema.task_id)
    version = version or _find_champion(connection, schema.task_id)
    released = list_releases(connection, schema.task_id, version=version, actions=["release"], limit=1)
    overlay = read_overlay(connection, schema.task_id, version)
    if not released or overlay is None:
        raise NotFound(f"Version {version} was never released for this task.")
    promised = released[0]
    earliest, latest = _allowed_bounds(schema, promised)
    latest = max(latest, overlay.valid_until)
    if valid_until is None:
        valid_until = max(overlay.valid_until, promised.valid_until)
    if valid_until > latest:
        fault = f"is beyond {format_moment(latest)}, the longest horizon that the task allows this version"
        raise InvalidInput([Fault("valid_until", fault)])
    if earliest is not None and valid_until < earliest:
        raise InvalidInput([Fault("valid_until", f"is before {format_moment(earliest)}, the version's cutoff")])
    row = record_release(
        connection,
        schema.task_id,
        version,
        action="override",
        valid_until=valid_until,
        actor=actor,
        reason=reason,
        now=now,
        verdict=BoundOverride(from_micros(overlay.valid_until), from_micros(promised.valid_until)),
    )
    if valid_until != overlay.valid_until:
        return row, None
    note = (
        f"version {version} was valid until {format_moment(valid_until)} already, so its bound has not changed: pass "
        f"another valid_until, at most {format_moment(latest)}"
    )
    return row, note


def _find_champion(connection: Connection, task_id: int) -> str:
    rows = list_releases(connection, task_id, actions=CHAMPION_ACTIONS, limit=1, with_calibration=False)
    if not rows:
        raise NotFound("No version has been released for this task yet.")
    return rows[0].version


def _allowed_bounds(schema: Schema, promised: Release) -> tuple[int | None, int]:
    """The cutoff, and the cutoff plus `max_age` windows of the release. Old rows name no cutoff."""
    matrix = promised.matrix
    if matrix is None or matrix.cutoff is None or not matrix.horizon:
        return None, promised.valid_until
    start = to_micros(matrix.cutoff)
    window = (promised.valid_until - start) // matrix.horizon
    latest = start + schema.task.guard.max_age * window
    return start, max(latest, promised.valid_until)
