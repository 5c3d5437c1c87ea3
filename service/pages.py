"""The pages that people open: `/`, what answers now and how the last cycles ended; `/problems/…`, what a type means."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from jinja2 import Environment
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from contracts.catalog import list_tasks
from contracts.clock import to_micros
from contracts.cycles import list_cycles
from contracts.errors import Unavailable
from service.cycles import describe_cycle, next_cycle
from service.follower import Follower
from service.problems import HTTP_KINDS, KINDS
from service.standing import state_of
from service.status import describe_live_errors, describe_model
from service.store import Store

NUM_CYCLES_SHOWN = 5


def pages_router(store: Store, follower: Follower) -> APIRouter:
    """The HTML routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def get_dashboard() -> HTMLResponse:
        now = to_micros(datetime.now(UTC))
        try:
            tasks = await store.run(lambda connection: _read_tasks(connection, now))
            database = None
        except Unavailable as error:
            tasks = [{"name": name, "cycles": [], "next_cycle": None} for name in follower.tasks]
            database = str(error)
        shown = [{**task, **_describe(follower, task["name"], now)} for task in tasks]
        return HTMLResponse(_DASHBOARD.render(tasks=shown, database=database))

    @router.get("/problems/{name}")
    async def get_problem(name: str) -> HTMLResponse:
        for error, kind in KINDS.items():
            if kind.name == name:
                return HTMLResponse(_PROBLEM.render(kind=kind, text=(error.__doc__ or "").strip()))
        for kind in HTTP_KINDS.values():
            if kind.name == name:
                return HTMLResponse(_PROBLEM.render(kind=kind, text=""))
        raise HTTPException(404, "There is no such type of problem.")

    return router


def _describe(follower: Follower, task: str, now: int) -> dict[str, Any]:
    """What answers and how it stands, as the follower saw it last."""
    forecaster, standing = follower.forecasters.get(task), follower.standings.get(task)
    live_errors = []
    if forecaster is not None and standing is not None and standing.version == forecaster.version:
        live_errors = describe_live_errors(forecaster, standing)
    closing = None if standing is None else standing.closing
    return {
        **describe_model(follower, task, forecaster),
        "state": state_of(forecaster, standing, now),
        "closed": None if closing is None else closing.reason,
        "better_method": None if standing is None else standing.better_method,
        "live_errors": live_errors,
    }


def _read_tasks(connection: Connection, now: int) -> list[dict[str, Any]]:
    return [
        {
            "name": schema.task.name,
            "revision": schema.revision,
            "next_cycle": next_cycle(schema.task, now),
            "cycles": [describe_cycle(cycle) for cycle in list_cycles(connection, schema.task_id, NUM_CYCLES_SHOWN)],
        }
        for schema in list_tasks(connection)
    ]


_PAGES = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Morrow</title><style>
:root { color-scheme: light dark; --ink: #1c2430; --soft: #66717f; --line: #d9dfe6; --page: #f6f8fa; --card: #fff;
  --good: #1a7f4b; --bad: #b3382c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #93a0ae; --line: #2c3743; --page: #12171d;
  --card: #1a2129; --good: #4cc38a; --bad: #f0776a; } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 0 0 .6rem; } a { color: inherit; }
p, dl { margin: .3rem 0; } .soft, dt { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem;
  margin-top: 1.2rem; overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; margin-top: .8rem; font-size: .9rem; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .25rem .8rem .25rem 0; border-top: 1px solid var(--line); vertical-align: top; }
dd, td { font-variant-numeric: tabular-nums; }
</style></head><body>
"""

_DASHBOARD = _PAGES.from_string(
    _HEAD
    + """
<h1>Morrow</h1>
<p class="soft">Models trained for the window they will serve ·
<a href="docs">API</a> · <a href="metrics">metrics</a> · <a href="readyz">readiness</a></p>
{% if database %}<p class="bad">{{ database }} Predictions go on from local copies.</p>{% endif %}
{% for task in tasks %}
<section>
<h2>{{ task.name }} {% if task.revision %}<span class="soft">revision {{ task.revision }}</span>{% endif %}</h2>
<dl>
<dt>state</dt><dd class="{{ 'good' if task.state == 'valid' else 'bad' if task.champion else 'soft' }}">
{{ task.state | replace("_", " ") }}{% if task.closed %}: {{ task.closed }}{% endif %}</dd>
{% if task.champion %}
<dt>version</dt><dd>{{ task.champion.version }}</dd>
<dt>trained until</dt><dd>{{ task.champion.trained_until }}</dd>
<dt>valid until</dt><dd>{{ task.champion.valid_until }}
({{ task.champion.horizon }} window{{ "" if task.champion.horizon == 1 else "s" }})</dd>
<dt>{{ task.champion.error_name | replace("_", " ") }} by age</dt>
<dd>{% for age in task.champion.errors %}{{ "%.4g" | format(age.mean) }}{{ " · " if not loop.last }}{% endfor %}</dd>
<dt>realised</dt>
<dd>{% for age in task.live_errors %}
{% if age.realised is none %}–{% else %}
<span class="{{ 'bad' if age.limit is not none and age.realised > age.limit }}">{{ "%.4g" | format(age.realised) }}
{%- if not age.is_complete %} so far{% endif %}</span>{% endif %}{{ " · " if not loop.last }}
{% else %}–{% endfor %}</dd>
{% if task.better_method %}
<dt>better method</dt><dd class="bad">{{ task.better_method.method }}</dd>
{% endif %}
{% else %}
<dt>version</dt><dd class="soft">none has been released yet</dd>
{% endif %}
<dt>registry</dt>
<dd class="{{ 'good' if task.registry.state == 'ok' else 'bad' }}">{{ task.registry.state }}
{% if task.registry.reason %}: {{ task.registry.reason }}{% endif %}</dd>
<dt>next cycle</dt><dd>{{ task.next_cycle or "on request" }}</dd>
</dl>
{% if task.cycles %}
<table><tr><th>cutoff</th><th>state</th><th>version</th><th>rows</th><th>ended</th><th>reason</th></tr>
{% for cycle in task.cycles %}
<tr><td>{{ cycle.cutoff }}</td>
<td class="{{ {'released': 'good', 'failed': 'bad'}.get(cycle.state, '') }}">{{ cycle.state }}
{% if cycle.state == "running" and cycle.step %}({{ cycle.step }}){% endif %}</td>
<td>{{ cycle.version or "" }}</td><td>{{ "" if cycle.num_rows is none else cycle.num_rows }}</td>
<td>{{ cycle.ended_at or "" }}</td><td>{{ cycle.reason or "" }}</td></tr>
{% endfor %}
</table>
{% endif %}
</section>
{% else %}
<section><p>There is no task yet. Define one with <code>PUT /tasks/{task}</code> or
<code>morrow task apply FILE.toml</code>.</p></section>
{% endfor %}
</body></html>
"""
)

_PROBLEM = _PAGES.from_string(
    _HEAD
    + """
<h1>{{ kind.title }}</h1>
<p class="soft">Problem type <code>/problems/{{ kind.name }}</code>, status {{ kind.status }}</p>
{% if text %}<section><p>{{ text }}</p>
{% if kind.retry_after %}<p>Trying again after {{ kind.retry_after }} s may help.</p>{% endif %}</section>{% endif %}
</body></html>
"""
)
