"""The classes of a label as a task file lists them, and what is odd about how a file writes them."""

import re
import shlex
from collections.abc import Sequence

from cli.inferring.kinds import Judged
from cli.reading.numbers import NumberStyle, read_number
from contracts.spec.spec_values import MAX_TEXT, PRINTABLE
from contracts.truth import unify_truth

_MAX_CLASSES = 20
_FEW_NUMBERS = 5
_MAX_SHOWN = 3


def read_target(label: Judged) -> tuple[bool, tuple[str, ...]]:
    """Whether the label is a class, and the classes as they are stored."""
    if label.kind == "number" or (label.kind == "integer" and len(label.counts) > _FEW_NUMBERS):
        return False, ()
    classes = tuple(sorted({unify_truth(text) for text in label.counts if _is_class(text)}))
    return True, classes if 2 <= len(classes) <= _MAX_CLASSES else ()


def _is_class(text: str) -> bool:
    return len(text) <= MAX_TEXT and re.match(PRINTABLE, text) is not None


def describe_odd_classes(label: Judged) -> list[str]:
    """Notes on classes that may be an amount, that are written in several ways, or that cannot be classes."""
    odd = [text for text in label.counts if not _is_class(text)]
    numbers = [text for text in label.counts if read_number(text, NumberStyle()) is not None]
    notes = [
        f"the classes {_list(same)} differ in case or blanks only: if they are one, write them alike in the file and "
        "run infer again with --force"
        for same in _find_alike(label)
    ]
    if len(label.counts) > _MAX_CLASSES and len(numbers) > len(label.counts) / 2:
        notes.append(
            f"{len(numbers):,} of the {len(label.counts):,} classes are numbers: if {label.name} is an amount, run "
            f"infer again with --force {shlex.join(['--kind', f'{label.name}=number'])}"
        )
    if odd:
        notes.append(
            f"{'1 class is' if len(odd) == 1 else f'{len(odd):,} classes are'} left out: a class has at most "
            f"{MAX_TEXT} characters, none of them a control character"
        )
    return notes


def describe_odd_categories(one: Judged) -> list[str]:
    """A note on categories of a feature that are written in several ways."""
    alike = _find_alike(one)
    if not alike:
        return []
    more = len(alike) - _MAX_SHOWN
    shown = "; ".join(map(_list, alike[:_MAX_SHOWN])) + (f"; and {more:,} more" if more > 0 else "")
    return [
        f"{one.name} holds texts that differ in case or blanks only, and count as different: {shown}. If they are one, "
        "write them alike in the file before it is imported"
    ]


def _find_alike(one: Judged) -> list[list[str]]:
    """The groups of texts of a column that differ in case or blanks only."""
    by_form: dict[str, list[str]] = {}
    for text in sorted({unify_truth(text) for text in one.counts}):
        by_form.setdefault(" ".join(text.casefold().split()), []).append(text)
    return [same for same in by_form.values() if len(same) > 1]


def _list(texts: Sequence[str]) -> str:
    """The first of some texts."""
    more = len(texts) - _MAX_SHOWN
    return " and ".join(map(repr, texts[:_MAX_SHOWN])) + (f" and {more:,} more" if more > 0 else "")
