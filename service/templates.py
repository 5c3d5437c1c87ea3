"""How the pages look: one style, readable on a telephone, that needs nothing from the internet."""

import re
from typing import Any

from jinja2 import Environment


def _shorten_moment(text: str) -> str:
    """A moment for people: a space for the T, and whole seconds."""
    return re.sub(r"^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.\d+)?Z$", r"\1 \2Z", text)


def _shorten_figure(value: float | None) -> str:
    return "–" if value is None else f"{value:#.4g}".rstrip(".")


_PAGES = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
_PAGES.filters |= {"moment": _shorten_moment, "figure": _shorten_figure}

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Morrow</title><style>
:root { color-scheme: light dark; --ink: #1c2430; --soft: #66717f; --line: #d9dfe6; --page: #f6f8fa; --card: #fff;
  --good: #1a7f4b; --warn: #9a6700; --bad: #b3382c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #93a0ae; --line: #2c3743; --page: #12171d;
  --card: #1a2129; --good: #4cc38a; --warn: #e0b252; --bad: #f0776a; } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 0 0 .6rem; } a { color: inherit; }
h3 { font-size: 1rem; margin: 1rem 0 0; } code { font-size: .9em; overflow-wrap: anywhere; }
p, dl { margin: .3rem 0; } .soft, dt { color: var(--soft); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem;
  margin-top: 1.2rem; }
.wide { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; margin-top: .8rem; font-size: .9rem; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .25rem .8rem .25rem 0; vertical-align: top; } td { border-top: 1px solid var(--line); }
.more td { border: 0; padding-top: 0; white-space: normal; color: var(--soft); }
th, td, time { white-space: nowrap; } dd, td { font-variant-numeric: tabular-nums; }
@media (max-width: 30rem) { body { padding: 1rem .5rem; } section { padding: .8rem; } .spare { display: none; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .3rem; } }
</style></head><body>
"""

_DASHBOARD = """
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
<dt>trained until</dt><dd><time>{{ task.champion.trained_until | moment }}</time></dd>
<dt>valid until</dt><dd><time>{{ task.champion.valid_until | moment }}</time>
({{ task.champion.horizon }} window{{ "" if task.champion.horizon == 1 else "s" }}
{%- if task.override %} validated; by override of {{ task.override }}{% endif %})</dd>
{% if task.better_method %}
<dt>better method</dt><dd class="bad">{{ task.better_method.method }}</dd>
{% endif %}
{% else %}
<dt>version</dt><dd class="soft">none has been released yet</dd>
{% endif %}
<dt>registry</dt>
<dd class="{{ 'good' if task.registry.state == 'ok' else 'bad' }}">{{ task.registry.state }}
{% if task.registry.reason %}: {{ task.registry.reason }}{% endif %}</dd>
<dt>next cycle</dt><dd><time>{{ (task.next_cycle or "on request") | moment }}</time></dd>
</dl>
{% for warning in task.warnings %}
<p class="warn">{{ warning }}</p>
{% endfor %}
{% if task.live_errors %}
<div class="wide"><table>
<tr><th>age</th><th class="spare">window</th><th>{{ task.champion.error_name | replace("_", " ") }}</th>
<th class="spare">band</th><th>limit</th><th>realised</th><th class="spare">rows</th></tr>
{% for age in task.live_errors %}
<tr><td>{{ age.age }}</td><td class="spare">{{ age.window | moment }}</td><td>{{ age.expected | figure }}</td>
<td class="spare">{{ age.low | figure }} … {{ age.high | figure }}</td><td>{{ age.limit | figure }}</td>
<td class="{{ 'bad' if age.realised is not none and age.limit is not none and age.realised > age.limit }}">
{{ age.realised | figure }}{% if age.realised is not none and not age.is_complete %} so far{% endif %}</td>
<td class="spare">{{ age.num_rows }}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{% if task.cycles %}
<div class="wide"><table>
<tr><th>cutoff</th><th>state</th><th>version</th><th class="spare">rows</th><th class="spare">ended</th></tr>
{% for cycle in task.cycles %}
<tr><td>{{ cycle.cutoff | moment }}</td>
<td class="{{ {'released': 'good', 'held': 'warn', 'failed': 'bad'}.get(cycle.state, '') }}">{{ cycle.state }}
{% if cycle.state == "running" and cycle.step %}({{ cycle.step }}){% endif %}</td>
<td>{{ cycle.version or "" }}</td><td class="spare">{{ "" if cycle.num_rows is none else cycle.num_rows }}</td>
<td class="spare">{{ (cycle.ended_at or "") | moment }}</td></tr>
{% if cycle.reason %}
<tr class="more"><td colspan="5">{{ cycle.reason }}</td></tr>
{% endif %}
{% endfor %}
</table></div>
{% endif %}
</section>
{% else %}
<section><p>There is no task yet. Define one with <code>PUT /tasks/{task}</code> or
<code>morrow task apply FILE.toml</code>.</p></section>
{% endfor %}
</body></html>
"""

_PROBLEM = """
<h1>{{ kind.title }}</h1>
<p class="soft">Problem type <code>/problems/{{ kind.name }}</code>, status {{ kind.status }}</p>
{% if text %}<section><p>{{ text }}</p>
{% if kind.retry_after %}<p>Trying again after {{ kind.retry_after }} s may help.</p>{% endif %}</section>{% endif %}
</body></html>
"""

_DOCS = """
<h1>{{ document.info.title }} {{ document.info.version }}</h1>
<p class="soft">{{ document.info.description }} The whole of it, for programs: <a href="openapi.json">openapi.json</a> ·
<a href=".">tasks</a></p>
{% for path, verbs in document.paths.items() %}
<section><h2><code>{{ path }}</code></h2>
{% for verb, operation in verbs.items() %}
<h3>{{ verb | upper }} <span class="soft">{{ operation.summary }}</span></h3>
{% if operation.description %}<p>{{ operation.description }}</p>{% endif %}
{% if operation.parameters %}
<dl>
{% for parameter in operation.parameters %}
<dt><code>{{ parameter.name }}</code> in {{ parameter.in }}</dt><dd>{{ parameter.description or "" }}
{% if parameter.required %}(required){% endif %}</dd>
{% endfor %}
</dl>
{% endif %}
<p class="soft">answers
{% for status, response in operation.responses.items() %}
{{ status }}: {{ response.description }}{{ " · " if not loop.last }}
{% endfor %}</p>
{% endfor %}
</section>
{% endfor %}
</body></html>
"""

_DASHBOARD_PAGE, _PROBLEM_PAGE, _DOCS_PAGE = (
    _PAGES.from_string(_HEAD + body) for body in (_DASHBOARD, _PROBLEM, _DOCS)
)


def render_dashboard(**found: Any) -> str:
    """The page of all tasks."""
    return _DASHBOARD_PAGE.render(**found)


def render_problem(**found: Any) -> str:
    """What a type of problem means."""
    return _PROBLEM_PAGE.render(**found)


def render_docs(document: dict[str, Any]) -> str:
    """An OpenAPI document as a page."""
    return _DOCS_PAGE.render(document=document)
