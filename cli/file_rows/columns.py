"""Which column of a file is which value of an event: by `--map`, or by a name that may differ in spelling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cli.reading.options import Options
from cli.reading.tables import absent_column, find_dropped, list_columns, shorten
from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import find_near, list_names, suggest_name
from contracts.task import Task

# The column in which `cli.file_rows.rejects` writes why a row was refused. No feature can have this name, because names
# of features begin with a letter.
REASON = "_reason"
OWN_COLUMNS = ("event_id", "at", "known_at", "label")
# What a row of an event needs besides features. A question needs no label, and no moment if all have the same.
EVENT = ("at", "label")


@dataclass(frozen=True)
class Columns:
    """The places of an event's values in a row, counted from 0.

    event_id   the column of ids; None if ids are made of `id_from`, or of the whole row if that is empty
    at         one column, or two of a date and a time; none if rows have no moment of their own
    label      None if rows are questions
    features   each feature that the file has, in the task's order
    """

    event_id: int | None
    id_from: tuple[int, ...]
    at: tuple[int, ...]
    known_at: int | None
    label: int | None
    features: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]

    @property
    def has_row_ids(self) -> bool:
        """Whether the ids of events are digests of whole rows."""
        return self.event_id is None and not self.id_from

    @property
    def used(self) -> set[int]:
        """The places of all columns that are read."""
        single = [place for place in (self.event_id, self.known_at, self.label) if place is not None]
        return {*single, *self.id_from, *self.at, *(place for _, place in self.features)}


def match_columns(names: Sequence[str], task: Task, options: Options, needed_values: Sequence[str] = EVENT) -> Columns:
    """The columns of a file with these names. Raises InvalidInput if a needed one is missing, or if two fit.

    A moment or label that is not among `needed_values` is not read.
    """
    dropped = find_dropped(names, options)
    _refuse_named_missing(names, options)
    match = _Match([None if name in dropped or name == REASON else name for name in names], task)
    mapped = match.read_mapping(options)
    features = [feature.name for feature in task.features]
    faults: list[Fault] = []
    found: dict[str, tuple[int, ...]] = {}
    unread = {*EVENT} - {*needed_values}
    unread |= {"known_at"} if "label" in unread else set()
    unread |= {"event_id"} if options.id_from else set()
    for ours in (*OWN_COLUMNS, *features):
        if ours in unread:
            continue
        try:
            places = match.find(ours, mapped.get(ours))
        except InvalidInput as error:
            faults += error.faults
            continue
        if places is not None:
            found[ours] = places
    needed = [value for value in needed_values if value != "label" or not options.unlabelled]
    needed += [feature.name for feature in task.features if not feature.optional]
    told = {*mapped, *(fault.field for fault in faults)}
    absent = [ours for ours in needed if ours not in found and ours not in told]
    faults += [match.missing(ours, is_last=ours == absent[-1]) for ours in absent]
    if faults:
        raise InvalidInput(faults)
    id_from = tuple(match.place_of("--id-from", name) for name in options.id_from)
    if options.unlabelled and not options.id_from and "event_id" not in found:
        reason = "needs ids that stay when labels come: a column event_id, or --id-from COLUMNS"
        raise InvalidInput([Fault("--unlabelled", reason)])
    columns = Columns(
        event_id=found["event_id"][0] if "event_id" in found else None,
        id_from=id_from,
        at=found.get("at", ()),
        known_at=found["known_at"][0] if "known_at" in found else None,
        label=found["label"][0] if "label" in found else None,
        features=tuple((name, found[name][0]) for name in features if name in found),
        notes=(),
    )
    optional = [name for name in features if name not in found]
    return Columns(**{**vars(columns), "notes": tuple(match.describe(columns, found, optional))})


def normalise(name: str) -> str:
    """A name without accents, case, blanks and marks: two spellings of one name become the same."""
    return suggest_name(name).casefold().rstrip("_")


def join_moment(cells: Sequence[Any], places: Sequence[int]) -> Any:
    """The cell of a moment, or those of a date and a time as one."""
    if len(places) == 1:
        return cells[places[0]]
    return " ".join(str(cells[place]).strip() for place in places).strip()


class _Match:
    """The names of a file, None for those that are not read, matched with those of a task."""

    def __init__(self, names: Sequence[str | None], task: Task) -> None:
        self._names = names
        self._task = task
        self._normal = [None if not name else normalise(name) for name in names]
        self._known = {*OWN_COLUMNS, *(feature.name for feature in task.features)}

    def read_mapping(self, options: Options) -> dict[str, str]:
        """Our names, each with its column's. Raises InvalidInput for a name of ours that is unknown or given twice."""
        mapped: dict[str, str] = {}
        for ours, column in options.columns:
            name = "label" if ours == self._task.target.name and ours not in self._known else ours
            if name not in self._known:
                near = find_near(ours, tuple(self._known))
                remedy = list_names(sorted(self._known)) if near is None else f"write {near}={column}"
                raise InvalidInput([Fault("--map", f"{ours} is no value of an event of {self._task.name}: {remedy}")])
            if name in mapped:
                raise InvalidInput([Fault("--map", f"{name} is given twice: {mapped[name]} and {column}")])
            mapped[name] = column
        for name, column in mapped.items():
            is_there = column in self._names or name == "at"  # else it is refused as absent
            if is_there and name in self._names and name not in mapped.values() and name not in column.split("+"):
                reason = f"names a column, and so does --map {name}={column}: leave one out, such as by --drop {name}"
                raise InvalidInput([Fault(name, reason)])
        return mapped

    def find(self, ours: str, given: str | None) -> tuple[int, ...] | None:
        """The places of one of our values, None if no column fits. Raises InvalidInput."""
        if given is not None:
            parts = [given] if given in self._names or ours != "at" else given.split("+")
            return tuple(self.place_of("--map", part.strip() if len(parts) > 1 else part) for part in parts)
        candidates = [ours] if ours != "label" else [ours, self._task.target.name]
        for name in candidates:
            if name in self._names:
                return (self._names.index(name),)
        for name in candidates:
            places = [place for place, one in enumerate(self._normal) if one == normalise(name)]
            # A column that is one of our names in full belongs to that.
            places = [place for place in places if self._names[place] not in self._known]
            if len(places) > 1:
                both = " and ".join(f"{self._names[place]!r}" for place in places)
                raise InvalidInput([Fault(ours, f"could be {both}: choose one with --map {ours}=COLUMN")])
            if places:
                return (places[0],)
        return None

    def place_of(self, option: str, column: str) -> int:
        """The place of a column that an option names. Raises InvalidInput."""
        if column in self._names:
            return self._names.index(column)
        places = [place for place, one in enumerate(self._normal) if one and one == normalise(column)]
        if len(places) == 1:
            return places[0]
        raise InvalidInput([absent_column(option, column, [name or "" for name in self._names])])

    def missing(self, ours: str, *, is_last: bool) -> Fault:
        """The fault of a value that no column gives; the last one lists the columns that there are."""
        also = f", nor is {self._task.target.name}" if ours == "label" else ""
        how = f"name it with --map {ours}=COLUMN" + (", or --map at=DATE+TIME for two" if ours == "at" else "")
        if len(self._names) == 1:
            how = "name what separates them with --separator, and delete lines above the header"
        remedy = f" ({list_columns(self._names)}): {how}" if is_last else ""
        return Fault(ours, f"is not a column of the file{also}{remedy}")

    def describe(self, columns: Columns, found: dict[str, tuple[int, ...]], absent: Sequence[str]) -> list[str]:
        """What to say about columns whose names differ from ours, or that are not read."""
        renamed = [
            f"{' and '.join(str(self._names[place]) for place in places)!r} is read as {ours}"
            for ours, places in found.items()
            if [self._names[place] for place in places] != [ours]
        ]
        passed = [name for place, name in enumerate(self._names) if name and place not in columns.used]
        notes = [f"{'; '.join(renamed)}."] if renamed else []
        if columns.id_from:
            notes.append(f"Ids are made of {', '.join(str(self._names[place]) for place in columns.id_from)}.")
        elif columns.has_row_ids and columns.label is not None:
            notes.append("No column is event_id: ids are digests of whole rows. To use a column: --id-from COLUMN.")
        if absent:
            notes.append(f"Missing in all rows, as no column has the name: {shorten(absent)}.")
        if passed:
            notes.append(f"Not read, as {self._task.name} has no such feature: {shorten(passed)}.")
        return notes


def _refuse_named_missing(names: Sequence[str], options: Options) -> None:
    """Raises InvalidInput if `--missing` names a column, with its cells or without."""
    for given in sorted(options.missing):
        name, sign, cells = given.partition("=")
        if name in names and name:
            cell = cells if sign and cells else "NA"
            reason = f"{given!r} names a column, and cells are named here, for all columns: write --missing {cell}"
            raise InvalidInput([Fault("--missing", reason)])
