"""The page of settings: every environment variable that Morrow reads."""

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from contracts.runtime.settings import SharedSettings
from handbook.tables import code, table
from service.settings import ServiceSettings
from trainer.settings import TrainerSettings

PREFIX = "MORROW_"
_HOUSE = Path(__file__).parents[1]
_HEAD = ("variable", "default", "meaning")
# Variables outside the settings models: of the command line, and for work on Morrow.
_COMMAND_LINE = (
    ("MORROW_URL", "`http://127.0.0.1:8000`", "address of the API that commands call"),
    ("MORROW_KEY", "unset", "key that commands send with every request"),
)
_DEVELOPERS = (
    ("MORROW_TEST_DATABASE_URL", "unset", "a PostgreSQL to test on, in place of the embedded one"),
    ("MORROW_PAPER_DATA", "`../shared/data`", "folder of the paper's data sets, for benchmarks and tests"),
    ("MORROW_COLD_STARTS", "few", "number of times that a test starts three APIs and a trainer on an empty database"),
    ("MORROW_FUZZ_EXAMPLES", "few", "number of random requests that a test sends to each operation of the API"),
    ("MORROW_LARGE_MIB", "`128`", "size of the version that a test loads under traffic, in MiB"),
)
# Defaults that depend on the machine.
_FOUND = {
    "batch_threads": "cores / workers",
    "body_budget_bytes": "`67108864`",
    "git_sha": "that of the checkout",
    "home": "`~/.morrow`",
}
_COMPOSE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?(?P<demand>[^}]*))?\}")


def settings_page() -> str:
    """All settings, grouped by the process that reads them."""
    shared = set(SharedSettings.model_fields)
    parts = (
        ("All processes", _rows(SharedSettings, set())),
        ("API", _rows(ServiceSettings, shared)),
        ("Trainer", _rows(TrainerSettings, shared)),
        ("Command line", ((code(name), default, meaning) for name, default, meaning in _COMMAND_LINE)),
        ("Work on Morrow", ((code(name), default, meaning) for name, default, meaning in _DEVELOPERS)),
    )
    sections = "\n".join(f"## {title}\n\n{table(_HEAD, rows)}" for title, rows in parts)
    return (
        "# Settings\n\nSettings are environment variables, read once at the start; an empty one is unset. "
        "A process ends with a sentence that names the variable if it cannot read a value.\n"
        "The settings of a task (window, guard, training) are in [its file](task.md).\n\n"
        f"{sections}\n## Compose\n\nVariables that the compose files read from `.env`, in addition to those above.\n\n"
        f"{table(('variable', 'default'), _compose_rows())}"
    )


def _rows(settings: type[BaseSettings], without: set[str]) -> Iterator[tuple[str, str, str]]:
    for name, field in settings.model_fields.items():
        if name not in without:
            yield code(PREFIX + name.upper()), _default(name, field), field.description or ""


def _default(name: str, field: FieldInfo) -> str:
    if name in _FOUND:
        return _FOUND[name]
    value = field.default
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple):
        return code(str(list(value))) if value else "empty"
    return code(str(value))


def _compose_rows() -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for file in sorted(_HOUSE.glob("docker-compose*.yml")):
        for variable in _COMPOSE.finditer(file.read_text("utf-8")):
            default = "required" if variable["demand"] is not None else code(variable["default"] or "") or "empty"
            found.setdefault(variable["name"], default)
    return [(code(name), default) for name, default in sorted(found.items())]
