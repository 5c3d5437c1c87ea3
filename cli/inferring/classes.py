"""The classes of a label as a task file lists them, and what is odd about how a file writes them."""

import re

from cli.inferring.kinds import Judged
from contracts.spec.spec_values import MAX_TEXT, PRINTABLE
from contracts.truth import unify_truth

_MAX_CLASSES = 20
_FEW_NUMBERS = 5


def read_target(label: Judged) -> tuple[bool, tuple[str, ...]]:
    """Whether the label is a class, and the classes as they are stored."""
    if label.kind == "number" or (label.kind == "integer" and len(label.counts) > _FEW_NUMBERS):
        return False, ()
    classes = tuple(sorted({unify_truth(text) for text in label.counts if _is_class(text)}))
    return True, classes if 2 <= len(classes) <= _MAX_CLASSES else ()


def _is_class(text: str) -> bool:
    return len(text) <= MAX_TEXT and re.match(PRINTABLE, text) is not None


def describe_odd_classes(label: Judged) -> list[str]:
    """Notes on texts of the label that cannot be classes, and on one class that is written in several ways."""
    odd = [text for text in label.counts if not _is_class(text)]
    by_form: dict[str, list[str]] = {}
    for text in sorted({unify_truth(text) for text in label.counts}):
        by_form.setdefault(" ".join(text.casefold().split()), []).append(text)
    notes = [
        f"the classes {' and '.join(map(repr, same))} differ in case or blanks only: if they are one, write them alike "
        "in the file and run infer again with --force"
        for same in by_form.values()
        if len(same) > 1
    ]
    if not odd:
        return notes
    return [
        *notes,
        f"{'1 class is' if len(odd) == 1 else f'{len(odd):,} classes are'} left out: a class has at most "
        f"{MAX_TEXT} characters, none of them a control character",
    ]
