"""A task guessed from a file: time, label, ids, features and a window that holds enough rows, each with its reason."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from math import isclose

from cli.file_rows.columns import normalise
from cli.inferring.classes import describe_odd_categories, describe_odd_classes, read_target
from cli.inferring.kinds import Judged, Reading, complete, judge
from cli.inferring.moment_texts import looks_like_a_moment
from cli.inferring.names import map_columns, name_features, rank_name
from cli.inferring.profile import Profile
from cli.inferring.split_moments import TIME_NAMES
from cli.inferring.stand_ins import describe_stand_ins
from cli.inferring.windows import choose_window, describe_far_off, describe_gaps, part_far_off
from cli.reading.moments import MomentReader
from cli.reading.numbers import NumberStyle
from cli.reading.options import Options
from contracts.durations import parse_duration
from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import find_near, list_names
from contracts.task import MAX_FEATURES, Kind

_LABELS = (
    *("label", "target", "y", "outcome", "churned", "churn", "class", "is_churn", "default", "fraud", "is_fraud"),
    *("converted", "response", "survived", "price", "sales", "demand", "cnt", "count", "total", "load", "rentals"),
    *("revenue", "amount", "quantity", "value", "consumption"),
)
ROW_NUMBER = re.compile(r"(^|_)(index|idx|id|row|rows|row_?num\w*|nr|no|number|line|instant|key)$")
_IDS = re.compile(r"(^|_)(event_id|id|uuid|guid|key|nr)$")
_MAX_EXPLAINED = 12
# Hours of a day.
_MOST_CODES = 24
# Windows behind which a file counts as one of the past.
_OLD_WINDOWS = 2
# Rows without which a coincidence may look like a rule.
FEWEST_ROWS = 20


@dataclass(frozen=True)
class Guessed:
    """The parts of a task file, and how to import the file. `features` are pairs of a name and its column."""

    name: str
    at: Judged
    label: Judged
    label_why: str
    is_classification: bool
    is_count: bool
    classes: tuple[str, ...]
    features: tuple[tuple[str, Judged], ...]
    ids: str | None
    left_out: tuple[Judged, ...]
    window: str
    window_why: str
    is_past: bool
    first: datetime
    last: datetime
    options: Options
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """What a person has said about the task. `kinds` are columns, each with its kind."""

    at: str | None = None
    label: str | None = None
    window: str | None = None
    kinds: tuple[tuple[str, Kind], ...] = ()


def guess_task(profile: Profile, name: str, *, said: Said, options: Options, now: datetime) -> Guessed:
    """A task for a file. Raises InvalidInput if there is no row, no column of moments, or no label."""
    if not profile.num_rows:
        raise InvalidInput([Fault("file", "has no rows below its header")])
    is_european = any("semicolons" in note for note in profile.notes)
    reading = complete(profile.columns, options, is_european=is_european)
    judged = [judge(column, reading, profile.num_rows) for column in profile.columns]
    roles = _assign_roles(_set_kinds(judged, said.kinds), said, reading.options, profile.num_rows)
    at, label, ids = roles.at, roles.label, roles.ids
    options = reading.options
    notes = [*(note.removesuffix(".") for note in profile.notes if note.startswith("Column ")), *reading.guesses]
    if options.timezone is None and _is_naive(at, options):
        options = replace(options, timezone="UTC")
        notes.append("moments have no offset, and are taken as UTC: name their zone with --timezone")
    moments, far = part_far_off(_read_moments(at, options))
    if far:
        notes.append(describe_far_off(far, moments))
    notes += describe_gaps(moments)
    window, window_why = choose_window(moments, said.window)
    is_classification, classes = read_target(label)
    if is_classification:
        notes += describe_odd_classes(label)
    usable = _list_usable(roles.rest)
    if len(usable) > MAX_FEATURES:
        notes.append(
            f"a task has at most {MAX_FEATURES} features: the first {MAX_FEATURES} of {len(usable):,} are taken"
        )
    names = [column.name for column in profile.columns]
    features, columns = name_features(usable[:MAX_FEATURES], label, names)
    if not features:
        why = _explain(roles.rest, ()) or "the file has no other column"
        raise InvalidInput([Fault("--kind", f"no column can be a feature ({why}): name one with --kind COLUMN=KIND")])
    options = map_columns(options, at, label, columns, ids, names=names)
    for _, one in features:
        if one.kind == "category":
            notes += describe_odd_categories(one)
    notes += describe_stand_ins([label, *(one for _, one in features)], reading)
    notes += _find_leaks(profile, label, features, reading)
    first, last = min(moments), max(moments)
    return Guessed(
        name=name,
        at=at,
        label=label,
        label_why=roles.label_why,
        is_classification=is_classification,
        is_count=not is_classification and _may_count(label, reading),
        classes=classes,
        features=tuple(features),
        ids=None if ids is None else ids.name,
        left_out=_explain_left_out(roles.rest, features, usable[MAX_FEATURES:]),
        window=window,
        window_why=window_why,
        is_past=now - last > _OLD_WINDOWS * parse_duration(window),
        first=first,
        last=last,
        options=options,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Roles:
    """What the columns are for. Those of `rest` may become features."""

    at: Judged
    label: Judged
    label_why: str
    ids: Judged | None
    rest: list[Judged]


def _assign_roles(judged: Sequence[Judged], said: Said, options: Options, num_rows: int) -> _Roles:
    at = _find_time(judged, said.at, options)
    others = [one for one in judged if one is not at]
    label, why = _find_label(others, said.label, at)
    ids = _find_id(judged, num_rows)
    return _Roles(at, label, why, ids, [one for one in others if one is not label and one is not ids])


def _list_usable(rest: Sequence[Judged]) -> list[Judged]:
    """The columns that can be features; row numbers only if there is no other."""
    return [one for one in rest if one.kind not in ("none", "moment")] or [
        replace(one, kind="integer", why="counts the rows, but no other column can be a feature")
        for one in rest
        if one.column.is_row_number and not ROW_NUMBER.search(one.key)
    ]


def _set_kinds(judged: Sequence[Judged], kinds: Sequence[tuple[str, Kind]]) -> list[Judged]:
    """The columns, some of them of the kinds that --kind names. Raises InvalidInput if there is no such column."""
    said = {_named(judged, column, "--kind").name: kind for column, kind in kinds}
    return [replace(one, kind=said[one.name], why="as --kind says") if one.name in said else one for one in judged]


def _find_time(judged: Sequence[Judged], given: str | None, options: Options) -> Judged:
    """The column of moments."""
    if joined := next((one for one in judged if one.column.parts), None):
        return joined
    if given is not None:
        parts = given.split("+")
        if len(parts) == 1 or any(one.name == given for one in judged):
            return _named(judged, given, "--at")
        for part in parts:
            _named(judged, part.strip(), "--at")
        raise InvalidInput([Fault("--at", f"{given!r} does not name two columns, one of a date and one of a time")])
    moments = [one for one in judged if one.kind == "moment"]
    if not moments:
        for one in judged:
            if one.counts and all(map(looks_like_a_moment, list(one.counts)[:100])):
                raise InvalidInput([Fault(one.name, _why_unreadable(one, options))])
        raise InvalidInput(
            [
                Fault(
                    "--at",
                    f"no column holds moments, and every event needs one ({_list(judged)}): name it with --at COLUMN",
                )
            ]
        )
    return min(moments, key=lambda one: (rank_name(one.key, TIME_NAMES), one.num_missing))


def _why_unreadable(one: Judged, options: Options) -> str:
    """The reason of the first text that looks like a moment and cannot be read."""
    read = MomentReader(options.timezone, options.day_first, options.at_format)
    for text in one.counts:
        try:
            read(text)
        except ValueError as error:
            return str(error)
    return "holds moments and other texts"


def _may_count(label: Judged, reading: Reading) -> bool:
    """Whether labels are whole numbers, none of them negative."""
    style = reading.styles.get(label.name, NumberStyle())
    try:
        numbers = [style.read(text) for text in label.counts]
    except ValueError:  # --kind may call any column a number
        return False
    return all(isinstance(number, int) and number >= 0 for number in numbers)


def _find_label(judged: Sequence[Judged], given: str | None, at: Judged) -> tuple[Judged, str]:
    if given is not None:
        return _named(judged, given, "--label", hidden=[at]), "as --label says"
    usable = [one for one in judged if one.kind not in ("none", "moment")]
    if not usable:
        raise InvalidInput(
            [Fault("--label", f"no column can be the label ({_explain(judged, [at])}): name it with --label COLUMN")]
        )
    named = [one for one in usable if rank_name(one.key, _LABELS) < len(_LABELS)]
    if named:
        return min(
            named, key=lambda one: rank_name(one.key, _LABELS)
        ), "guessed by its name; --label COLUMN names another"
    decimals = [one for one in usable if one.kind == "number"]
    if decimals and _is_calendar_code(usable[-1]):
        return decimals[-1], "guessed as the last column of decimal numbers; --label COLUMN names another"
    return usable[-1], "guessed as the last column; --label COLUMN names another"


def _is_calendar_code(one: Judged) -> bool:
    """Whether a column holds a few whole numbers about equally often, as weekdays, months and hours do.

    Two numbers are a class more often, and counts of things are not equally frequent.
    """
    if not 2 < len(one.counts) <= _MOST_CODES or not all(text.isdecimal() for text in one.counts):
        return False
    return max(one.counts.values()) <= 2 * min(one.counts.values())


def _named(judged: Sequence[Judged], name: str, option: str, hidden: Sequence[Judged] = ()) -> Judged:
    """The column of a name. Raises InvalidInput, with all columns; those of `hidden` have another use."""
    if any(name == one.name for one in hidden):
        raise InvalidInput([Fault(option, f"{name!r} is read as the moments (--at): name another column")])
    same = [one for one in judged if one.name == name] or [
        one for one in judged if normalise(one.name) == normalise(name)
    ]
    if len(same) != 1:
        near = find_near(name, tuple(one.name for one in judged))
        meant = "" if near is None else f": write {near!r}"
        columns = _list([*hidden, *judged])
        raise InvalidInput([Fault(option, f"{name!r} is not a column of the file ({columns}){meant}")])
    return same[0]


def _explain(judged: Iterable[Judged], times: Sequence[Judged]) -> str:
    """The columns, each with the reason why it is left out."""
    whys = {one.name: "read as the moments" for one in times}
    said = [f"{one.name}: {whys.get(one.name, one.why)}" for one in [*times, *judged]]
    more = [f"and {len(said) - _MAX_EXPLAINED:,} more"] if len(said) > _MAX_EXPLAINED else []
    return "; ".join([*said[:_MAX_EXPLAINED], *more])


def _list(judged: Iterable[Judged]) -> str:
    return list_names([one.name for one in judged])


def _is_naive(time: Judged, options: Options) -> bool:
    read = MomentReader(None, options.day_first, options.at_format)
    for text in list(time.counts)[:100]:
        try:
            read(text)
        except ValueError as error:
            if "no offset" in str(error) or "its zone" in str(error):
                return True
    return False


def _read_moments(time: Judged, options: Options) -> Counter[datetime]:
    """The moments of rows with their counts. Raises InvalidInput if none can be read."""
    read = MomentReader(options.timezone, options.day_first, options.at_format)
    moments: Counter[datetime] = Counter()
    reason = "is empty"
    for text, count in time.counts.items():
        try:
            moments[datetime.fromisoformat(read(text))] += count
        except ValueError as error:
            reason = str(error)
    if not moments:
        raise InvalidInput([Fault(time.name, reason)])
    return moments


def _explain_left_out(
    rest: Sequence[Judged], features: Sequence[tuple[str, Judged]], too_many: Sequence[Judged]
) -> tuple[Judged, ...]:
    """The columns that are neither features nor used otherwise, each with its reason."""
    taken = {one.name for _, one in features}
    beyond = {one.name for one in too_many}
    return tuple(
        replace(one, why=f"a task has at most {MAX_FEATURES} features") if one.name in beyond else one
        for one in rest
        if one.name not in taken
    )


def _find_leaks(profile: Profile, label: Judged, features: Sequence[tuple[str, Judged]], reading: Reading) -> list[str]:
    """Features that give the label away: equal to it in every sampled row, or two of which it is the sum."""
    rows = [row for row in profile.sample if row[label.name] not in ("", *reading.options.missing)]
    if len(rows) < FEWEST_ROWS:
        return []
    labels = [row[label.name] for row in rows]
    notes = [
        f"{one.name} equals {label.name} in every row: drop it unless it is known before the outcome"
        for _, one in features
        if [row[one.name] for row in rows] == labels
    ]
    numbers = {
        one.name: [reading.styles[one.name].read(row[one.name]) for row in rows]
        for one in (label, *(one for _, one in features))
        if one.kind in ("integer", "number") and not one.num_missing
    }
    sums = numbers.pop(label.name, None)
    if sums is None:
        return notes
    for first, second in combinations(numbers, 2):
        pairs = zip(numbers[first], numbers[second], sums, strict=True)
        if all(isclose(float(a) + float(b), float(total), abs_tol=1e-9) for a, b, total in pairs):
            notes.append(
                f"{first} and {second} add up to {label.name}: drop them unless they are known before the outcome"
            )
    return notes


def _find_id(judged: Sequence[Judged], num_rows: int) -> Judged | None:
    """A column of ids: named so, different in every row, and never empty."""
    unique = [
        one for one in judged if len(one.counts) == num_rows and not one.num_missing and not one.column.is_row_number
    ]
    named = [one for one in unique if _IDS.search(one.key)]
    return named[0] if named else None
