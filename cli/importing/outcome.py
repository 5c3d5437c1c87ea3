"""What `morrow events import` says at its end: what became of the rows, why some were refused, and how to go on."""

import shlex

from rich.console import Console

from cli.file_rows.reasons import CONFLICT
from cli.importing.importer import Imported
from contracts.shown import say_count

NUM_REASONS_SHOWN = 10


def describe_imported(imported: Imported) -> dict[str, object]:
    """The facts of an import, for programs."""
    return {
        "num_rows": imported.num_rows,
        "num_before": imported.num_before,
        **imported.counts,
        "seconds": round(imported.seconds, 3),
        "rows_per_second": round(imported.rate, 1),
        "import": imported.import_id,
        "rejects": None if imported.rejects is None else str(imported.rejects),
        "notes": list(imported.notes),
        "num_equal": imported.num_equal,
        "differences": list(imported.differences),
        "reasons": [
            {
                "field": one.field,
                "reason": one.reason,
                "count": one.count,
                "example": one.example,
                "place": one.place,
            }
            for one in imported.reasons
        ],
    }


def print_imported(task: str, imported: Imported, *, dry_run: bool, corrected: str | None = None) -> None:
    """Print what became of the rows, the reasons of refused ones, and how to go on.

    `corrected` is the command that imports the file of refused rows, once it is corrected.
    """
    console = Console(highlight=False, soft_wrap=True)
    if dry_run:
        for note in imported.notes:
            console.print(note, markup=False)
        counts = imported.counts
        valid, refused = counts["created"], counts["rejected"]
        words = f"{say_count(valid, 'row')} {_are(valid)} valid and {refused:,} {_are(refused)} not"
        console.print(f"{words}. Nothing is stored.")
    else:
        console.print(", ".join(_say_outcome(count, outcome) for outcome, count in imported.counts.items()))
        num_sent = imported.num_rows - imported.num_before
        console.print(f"{say_count(num_sent, 'row')} in {imported.seconds:.1f} s: {imported.rate:,.0f} a second.")
    if imported.num_equal:
        equal = f"{say_count(imported.num_equal, 'row')} {'equals' if imported.num_equal == 1 else 'equal'}"
        console.print(f"{equal} an earlier one of the file: each is an event of its own, with a numbered id.")
    for reason in imported.reasons[:NUM_REASONS_SHOWN]:
        console.print(reason.describe(), markup=False, style="red")
    for difference in imported.differences:
        console.print(difference, markup=False)
    if len(imported.reasons) > NUM_REASONS_SHOWN:
        console.print(f"… and {len(imported.reasons) - NUM_REASONS_SHOWN} other reasons.", style="red")
    for way in _say_corrections(task, imported):
        console.print(way, markup=False)
    if imported.rejects is not None:
        said = f"The refused rows are in {imported.rejects}, with the reasons{_remedy(task, imported, corrected)}"
        # A full stop would be copied with the command.
        is_command = corrected is not None and said.endswith(corrected)
        console.print(said if is_command else f"{said}.", markup=False)
    stored = imported.counts["created"] + imported.counts.get("unlabelled", 0)
    if imported.import_id is not None and stored:
        console.print(f"Import {imported.import_id}. If it was a mistake: {_retract(task, imported)}", markup=False)
        if imported.has_row_ids and imported.counts["duplicates"]:
            console.print(
                "Ids are digests of rows, so a corrected row is stored next to the wrong one. If this file corrects an "
                f"earlier one, retract both, and import it again: morrow events history {task} lists them",
                markup=False,
            )


def _say_outcome(count: int, outcome: str) -> str:
    """The number of rows of an outcome, in words: the API counts refused rows as `rejected`."""
    plain = {"duplicates": "duplicate", "conflicts": "conflict"}.get(outcome, outcome)
    word = "refused" if outcome == "rejected" else plain if count == 1 else outcome
    return f"{count:,} {word}"


def _retract(task: str, imported: Imported) -> str:
    return f"morrow events retract {task} --import {imported.import_id}"


def _remedy(task: str, imported: Imported, command: str | None) -> str:
    """How the refused rows can be stored: by an option, or by a correction of the file that holds them."""
    reasons = [one for one in imported.reasons if one.reason != CONFLICT]
    ways = []
    if any(one.names_option for one in reasons):
        again = "import the file again with the option that a reason names"
        if not imported.has_row_ids or not (imported.counts["created"] or imported.counts["duplicates"]):
            ways.append(f"{again} (stored rows count as duplicates)" if not imported.has_row_ids else again)
        elif imported.counts["created"]:
            ways.append(f"retract this import, whose rows may get other ids ({_retract(task, imported)}), and {again}")
        else:
            ways.append(f"retract what is stored (morrow events history {task}), as ids may change, and {again}")
    if any(not one.names_option for one in reasons):
        left_out = len(reasons) < len(imported.reasons)
        which = "leave out its rows that are stored with other content, correct the others," if left_out else ""
        which = which or "correct that file"
        ways.append(f"{which} and {'import it too' if command is None else f'run: {command}'}")
    return f": {', or '.join(ways)}" if ways else ""


def _say_corrections(task: str, imported: Imported) -> list[str]:
    """How stored events that rows contradict can be corrected: one by one, or with their import."""
    found = next((one for one in imported.reasons if one.reason == CONFLICT), None)
    if found is None:
        return []
    event_id = shlex.quote(found.example)
    return [
        f"To correct a stored event: morrow events show {task} {event_id} > event.json, change that file, and run: "
        f"morrow events correct {task} event.json",
        "If this file has every row of an earlier import, and only then, retract that one (morrow events history "
        f"{task} lists them: morrow events retract {task} --import ID), and import this file again with --again.",
    ]


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
