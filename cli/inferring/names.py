"""Names of features, and the columns that an import does not find by the names of a task."""

from collections.abc import Sequence
from dataclasses import replace

from cli.file_rows.columns import OWN_COLUMNS, normalise
from cli.inferring.kinds import Judged
from cli.reading.options import Options
from contracts.spec.spec_values import RESERVED_NAMES


def name_features(
    judged: Sequence[Judged], label: Judged, names: Sequence[str]
) -> tuple[list[tuple[str, Judged]], dict[str, str]]:
    """Features with their names, and the columns that no name finds by itself among all columns' `names`."""
    taken = {label.key, *OWN_COLUMNS, *RESERVED_NAMES}
    features: list[tuple[str, Judged]] = []
    columns: dict[str, str] = {}
    for one in judged:
        name, number = one.key, 1
        while name in taken:
            number += 1
            name = f"{one.key[: 62 - len(str(number))]}_{number}"
        is_ours = one.name in OWN_COLUMNS
        if name != one.key or is_ours or (name != one.name and _num_alike(one.name, names) > 1):
            columns[name] = one.name
        taken.add(name)
        features.append((name, one))
    return features, columns


def map_columns(
    options: Options,
    at: Judged,
    label: Judged,
    columns: dict[str, str],
    ids: Judged | None,
    *,
    names: Sequence[str],
) -> Options:
    """The options with the columns that an import does not find by their names."""
    mapped = dict(options.columns)
    time = at.name
    if time != "at" and (normalise(time) != normalise("at") or _num_alike(time, names) > 1):
        mapped.setdefault("at", time)
    if not _is_found(label, names):
        mapped.setdefault("label", label.name)
    for name, column in columns.items():
        mapped.setdefault(name, column)
    if ids is not None and ids.name != "event_id" and not options.id_from:
        mapped.setdefault("event_id", ids.name)
    used = {part for column in mapped.values() for part in (column, *column.split("+"))}
    unused = [ours for ours in mapped if ours in names and ours not in used]
    return replace(options, columns=tuple(mapped.items()), dropped=(*options.dropped, *unused))


def _num_alike(name: str, names: Sequence[str]) -> int:
    """How many columns an import would take for this one by its name."""
    return sum(normalise(other) == normalise(name) for other in names)


def _is_found(label: Judged, names: Sequence[str]) -> bool:
    """Whether an import takes this column for the label by its name, or by that of the target."""
    for wanted in ("label", label.key):
        if wanted in names:
            return wanted == label.name
    for wanted in ("label", label.key):
        if alike := [name for name in names if normalise(name) == normalise(wanted)]:
            return alike == [label.name]
    return False


def rank_name(key: str, names: Sequence[str]) -> int:
    """The place of a name in a list; beyond it, if it is not there."""
    if key in names:
        return names.index(key)
    parts = key.split("_")
    return next((len(names) - 1 for name in names if name in parts and len(name) > 2), len(names))
