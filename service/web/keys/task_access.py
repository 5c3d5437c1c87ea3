"""Keys that are for some tasks only: what they may ask, at every path.

A path is open to such a key if it is listed here, so a new path is closed to it until somebody decides. A request names
its task in its path or in `task=`. Lists, pages and metrics show the key's tasks and nothing of others.
"""

import re
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from sqlalchemy import Connection
from starlette.types import Scope

from contracts.errors import NotFound, TaskRenamed
from service.errors import Forbidden
from store.api_keys import Key
from store.tasks.catalog import find_task_id

# Raises as `require_task`, with a connection of its own.
RequireTask = Callable[[str, frozenset[int]], Awaitable[None]]

# Where the ids of the tasks that a request may touch are, in the state of its scope.
_TASKS = "morrow.tasks"
_OF_ONE_TASK = re.compile(r"/(?:tasks|pages)/(?P<task>[^/]+)(?:/.*)?")
# Paths that ask a task's version, which needs no database to be found.
_ASKS_ONE_TASK = re.compile(r"/(?:tasks/(?P<task>[^/]+)/(?:invocations|ping)|v2/models/(?P<model>[^/]+)(?:/.*)?)")
_SHOWS_OWN_TASKS = frozenset({"/", "/tasks", "/metrics", "/docs", "/openapi.json", "/v2"})
# Paths about no task, or about one that only a row of the database names: their routes ask `tasks_of`.
_ASKS_LATER = ("/problems/", "/predictions/")


def tasks_of(scope: Scope) -> frozenset[int] | None:
    """The ids of the tasks that a request may touch; None for all."""
    found: frozenset[int] | None = scope.get("state", {}).get(_TASKS)
    return found


def require_task(connection: Connection, name: str, allowed: frozenset[int]) -> None:
    """Raise Forbidden unless a task is one of these, and TaskRenamed if it is one of them under another name now.

    A client that may not use a task does not learn whether there is one of this name.
    """
    try:
        task_id = find_task_id(connection, name)
    except TaskRenamed as error:
        require_task(connection, error.new_name, allowed)
        raise
    except NotFound:
        raise Forbidden(_FOR_OTHERS) from None
    if task_id not in allowed:
        raise Forbidden(_FOR_OTHERS)


async def limit_to_tasks(
    key: Key, scope: Scope, find_served: Callable[[str], int | None], require: RequireTask
) -> None:
    """Note the tasks of a key in its request, and raise Forbidden if it asks for another, or TaskRenamed.

    `find_served` knows the tasks that this process answers for, without a database. What is stored for `/events` is
    checked in the transaction that stores it.
    """
    if key.task_ids is None:
        return
    allowed = frozenset(key.task_ids)
    scope.setdefault("state", {})[_TASKS] = allowed
    path = scope["path"]
    asked = _ASKS_ONE_TASK.fullmatch(path)
    if asked is not None or path in ("/predict", "/invocations"):
        task = _task_of_query(scope) if asked is None else asked["task"] or asked["model"]
        task_id = find_served(task)
        if task_id is None:  # no poll has seen it yet
            await require(task, allowed)
        elif task_id not in allowed:
            raise Forbidden(_FOR_OTHERS)
    elif path == "/events" or path.startswith("/events/"):
        _task_of_query(scope)
    elif (one := _OF_ONE_TASK.fullmatch(path)) is not None:
        await require(one["task"], allowed)
    elif not (path in _SHOWS_OWN_TASKS or path.startswith(_ASKS_LATER)):
        raise Forbidden("The key is for some tasks only, and this path belongs to none.")


def _task_of_query(scope: Scope) -> str:
    """The task that `task=` names once. Raises Forbidden: without it, an answer could name other tasks."""
    query: str = scope["query_string"].decode("latin-1")
    named = [text for name, text in parse_qsl(query, keep_blank_values=True) if name == "task"]
    if len(named) != 1:
        raise Forbidden("The key is for some tasks only: name one of them once, as in ?task=NAME.")
    return named[0]


_FOR_OTHERS = (
    "The key is for other tasks only, or there is no such task: use a key that was made with "
    "`morrow keys add … --task NAME` for it, or one without --task."
)
