"""Every page of `docs/reference/` by name. The task file and the problem types are written here."""

from collections.abc import Callable

from contracts.spec.boosting import Boosting
from contracts.spec.prediction_log import PredictionLog
from contracts.spec.spec_values import RESERVED_NAMES, Spec
from contracts.task import Feature, Guard, Target, Task, Training
from handbook.api import api_page
from handbook.commands import benchmarks_page, commands_page
from handbook.metrics import metrics_page
from handbook.schema_tables import members
from handbook.settings import settings_page
from handbook.tables import code, table
from service.web.problems import HTTP_KINDS, KINDS

_TABLES: tuple[tuple[str, type[Spec]], ...] = (
    ("[features]", Feature),
    ("target", Target),
    ("guard", Guard),
    ("training", Training),
    ("training.boosting", Boosting),
    ("log", PredictionLog),
)


def task_page() -> str:
    """Every key of a task file."""
    tables = "\n".join(f"## [{name}]\n\n{model.__doc__}\n\n{_keys(model)}" for name, model in _TABLES)
    reserved = ", ".join(code(name) for name in sorted(RESERVED_NAMES))
    return (
        "# The task file\n\n"
        "A task is a TOML file for `morrow task apply`, or the same keys as JSON for `PUT /tasks/{task}`; "
        "[`cli/demo/flights.toml`](../../cli/demo/flights.toml) is a complete example. Unknown keys are refused. "
        "Durations are ISO 8601, such as `P7D` or `PT6H`. "
        f"No feature may have one of the names {reserved}: those are parameters of `/predict`.\n\n"
        f"{_keys(Task)}\nRepeat `[[features]]` for each feature.\n\n{tables}"
    )


def problems_page() -> str:
    """Every type of problem document."""
    kinds = {kind.name: kind for kind in (*KINDS.values(), *HTTP_KINDS.values())}
    rows = [
        (
            code(f"/problems/{kind.name}"),
            str(kind.status),
            kind.title,
            f"{kind.retry_after} s" if kind.retry_after else "",
        )
        for kind in sorted(kinds.values(), key=lambda kind: (kind.status, kind.name))
    ]
    return (
        "# Problem types\n\n"
        "Every answer that is not a success is `application/problem+json` (RFC 9457). `type` is stable: compare it, "
        "not the text. `errors` holds the first hundred faults, each with its field; `num_errors` counts all. "
        "`outside-horizon` also has `side`, `valid_from`, `valid_until` and `version`, and `gap_from` and `gap_until` "
        "if the moment lies in a gap between the rows of training. `throttled` gives in `Retry-After` the seconds "
        "until the key may send its next request.\n\n"
        f"{table(('type', 'status', 'title', 'Retry-After'), rows)}"
    )


PAGES: dict[str, Callable[[], str]] = {
    "settings": settings_page,
    "commands": commands_page,
    "task": task_page,
    "api": api_page,
    "problems": problems_page,
    "metrics": metrics_page,
    "benchmarks": benchmarks_page,
}


def write_page(name: str) -> str:
    """A page, with a comment that says how it is written."""
    return f"<!-- Written by `python -m handbook`. Change the code that it describes. -->\n\n{PAGES[name]().rstrip()}\n"


def _keys(model: type[Spec]) -> str:
    """The keys of one table, without those that are tables themselves and have sections of their own."""
    shape = model.model_json_schema()
    inner = {name for name, field in model.model_fields.items() if _is_table(field.annotation)}
    shown = {name: member for name, member in shape["properties"].items() if name not in inner}
    return members(shape | {"properties": shown})


def _is_table(annotation: object) -> bool:
    return annotation == tuple[Feature, ...] or (isinstance(annotation, type) and issubclass(annotation, Spec))
