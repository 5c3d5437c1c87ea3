"""The spellings of a boolean in text: each means the same wherever Morrow reads text without types."""

from collections.abc import Collection, Mapping
from typing import TypeVar

_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
TRUE_TEXT, FALSE_TEXT = "true", "false"

T = TypeVar("T")


def _spellings(words: tuple[str, ...]) -> set[str]:
    return {spelled for word in words for spelled in (word, word.capitalize(), word.upper())}


# Every spelling with its meaning: lower case, upper case, and a capital with lower case.
TRUTHS: Mapping[str, bool] = dict.fromkeys(_spellings(_TRUE), True) | dict.fromkeys(_spellings(_FALSE), False)
# The words that mean nothing else: a class or a category of another word, such as `no`, may be a code.
_PLAIN = {TRUE_TEXT: TRUE_TEXT, FALSE_TEXT: FALSE_TEXT}


def parse_truth(text: str) -> bool:
    """The boolean of a spelling. Raises ValueError."""
    found = TRUTHS.get(text)
    if found is None:
        raise ValueError("is neither true nor false (1, 0, yes, no, on, off, t, f, y and n are read too)")
    return found


def spell_truth(value: T) -> T | str:
    """`true` or `false` of a boolean, which is how a class or a category holds it; any other value unchanged."""
    return (TRUE_TEXT if value else FALSE_TEXT) if isinstance(value, bool) else value


def spell_code(value: T) -> T | str:
    """The text of a boolean or a whole number, which is how a category holds it; any other value unchanged."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else spell_truth(value)


def respell_truths(known: Collection[str]) -> dict[str, str]:
    """Spellings of true and false that are not known, each with the only known spelling of the same."""
    found: dict[str, str] = {}
    for word in _PLAIN:
        spellings = _spellings((word,))
        held = spellings.intersection(known)
        if len(held) == 1:
            found |= dict.fromkeys(spellings - held, *held)
    return found


def unify_truth(text: str) -> str:
    """`true` and `false` for their spellings with capitals, as `True` of Python and `TRUE` of R; other texts unchanged.

    Only for files of tables, in which either spelling means a boolean. A text in JSON is kept as its sender wrote it.
    """
    return _PLAIN.get(text.lower(), text)
