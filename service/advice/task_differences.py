"""What a new revision of a task changes, one line each with what follows from it."""

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any

from contracts.spec.spec_values import find_near
from contracts.task import Feature, Task, is_numeric

# Keys that have a line of their own, or that say nothing about fits.
_APART = frozenset({"name", "features", "window"})


def describe_differences(
    before: Task | None, task: Task, held: Mapping[str, Set[bool]] | None = MappingProxyType({})
) -> list[str]:
    """The differences from the revision before; none for a first revision.

    `held` says for each feature of any former revision whether it held numbers, texts or, in turn, both.
    It is None if no row is stored.
    """
    if before is None:
        return []
    lines = [*_describe_window(before, task), *_describe_features(before, task, held)]
    former, present = (_flatten(one.model_dump(mode="json")) for one in (before, task))
    for key in dict.fromkeys([*former, *present]):
        if former.get(key) != present.get(key):
            lines.append(f"{key} was {_show(former.get(key))} and is {_show(present.get(key))}")
    return lines


def warn_of_former_name(name: str, present: str | None) -> list[str]:
    """Warn that a new task has the former name of another one, whose file may have been meant."""
    if present is None:
        return []
    return [
        f"{name} was the name of the task that is {present} now, and this {name} is a new task without events: if "
        f'{present} was meant, write name = "{present}" in the file, and delete this one with morrow task delete {name}'
    ]


def _describe_window(before: Task, task: Task) -> list[str]:
    former, present = (one.model_dump(mode="json")["window"] for one in (before, task))
    if former == present:
        return []
    command = f" (morrow cycle {task.name} --again)" if task.schedule == "manual" else ""
    return [
        f"window was {former} and is {present}: every window is scored again by the next cycle{command}, whose version "
        f"is valid for windows of {present}"
    ]


def _describe_features(before: Task, task: Task, held: Mapping[str, Set[bool]] | None) -> list[str]:
    former, present = ({one.name: one for one in task_.features} for task_ in (before, task))
    removed = [name for name in former if name not in present]
    lines = []
    for name in present:
        if name not in former and held is None:
            lines.append(f"feature {name} is new")
        elif name not in former and held is not None and is_numeric(present[name].kind) in held.get(name, ()):
            lines.append(
                f"feature {name} is back: rows that were stored with it keep its values, and it counts as missing in "
                "the others"
            )
        elif name not in former:
            near = find_near(name, tuple(removed))
            renamed = (
                "" if near is None else f"; if it is {near} under another name, its former values are not taken over"
            )
            lines.append(f"feature {name} is new: it counts as missing in all earlier rows{renamed}")
        elif (changed := _describe_feature(former[name], present[name])) is not None:
            lines.append(changed)
    kept = "" if held is None else ": the next version does not use its values, which stay stored"
    return lines + [f"feature {name} is removed{kept}" for name in removed]


def _describe_feature(former: Feature, present: Feature) -> str | None:
    if former == present:
        return None
    old, new = former.model_dump(mode="json"), present.model_dump(mode="json")
    keys = [key for key in new if old[key] != new[key]]
    return f"feature {present.name}: " + ", ".join(
        f"{key} was {_show(old[key])} and is {_show(new[key])}" for key in keys
    )


def _flatten(spec: dict[str, Any]) -> dict[str, Any]:
    """The values of a spec by their keys, such as `training.tune`."""
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if key in _APART:
            continue
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            flat[key] = value
    return flat


def _show(value: object) -> str:
    """A value as a task file has it."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
