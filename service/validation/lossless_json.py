"""JSON decoded without losing what an explanation needs.

Python's decoder with these hooks keeps numbers as they were written and remembers names that are given twice. It also
cuts an array into the source texts of its rows, so that a refused row is kept exactly as it was sent.
"""

import codecs
import json
import re
from collections import Counter
from typing import Any

import numpy as np

from service.errors import Malformed, TooLarge
from service.validation.values import NumberLiteral

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Where an object may end, and another begin.
_NEXT_OBJECT = re.compile(rb"\}[ \t\n\r]*,[ \t\n\r]*\{")
# Decoded in about a millisecond.
_PART_BYTES = 2**18
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonObject(dict[str, Any]):
    """An object, and which of its names were given more than once."""

    repeated: tuple[str, ...] = ()


def collect(pairs: list[tuple[str, Any]]) -> JsonObject:
    """The object of these pairs, for `object_pairs_hook`."""
    collected = JsonObject(pairs)
    if len(collected) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        collected.repeated = tuple(name for name, count in counts.items() if count > 1)
    return collected


_DECODER = json.JSONDecoder(
    object_pairs_hook=collect, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=NumberLiteral
)


def limit_values(body: bytes, max_values: int) -> None:
    """Refuse a body that holds too many values. Raises TooLarge.

    Decoded, a value of two bytes takes a hundred: without this a body within its limit of size could fill the memory.
    """
    if len(body) > max_values and count_character(body, ",") > max_values and _count_commas(body) > max_values:
        raise TooLarge(f"The body holds more than {max_values} values.")


def cut_array(body: bytes) -> list[bytes]:
    """An array of objects as shorter arrays with the same objects in their order, if each decodes; else one does not.

    A decoder holds the interpreter for as long as it takes, and so holds up every other request of the process. The
    array is cut where one object seems to end and the next to begin. A cut that is wrong, inside a string or another
    object, leaves two parts that are no arrays.
    """
    parts, start, head = [], 0, b""
    while (cut := _NEXT_OBJECT.search(body, start + _PART_BYTES)) is not None:
        parts.append(b"%b%b]" % (head, body[start : cut.start() + 1]))
        start, head = cut.end() - 1, b"["
    return [*parts, b"%b%b" % (head, body[start:])] if parts else [body]


def count_character(body: bytes, character: str) -> int:
    """How many bytes are this ASCII character: as `bytes.count`, which takes seven times as long on JSON."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))


def _count_commas(body: bytes) -> int:
    """Commas between values: an even number of quotation marks stands before them.

    Counted in whole columns, so that a large body does not hold up other requests.
    """
    characters = np.frombuffer(without_escapes(body), np.uint8)
    is_in_text = np.logical_xor.accumulate(characters == ord('"'))
    return int(np.count_nonzero((characters == ord(",")) & ~is_in_text))


def without_escapes(body: bytes) -> bytes:
    """A JSON text without escaped backslashes and quotation marks: each mark that is left begins or ends a string."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def decode_text(body: bytes) -> str:
    """UTF-8, in which a byte order mark at the beginning says nothing. Raises Malformed."""
    if body.startswith(_UTF_16) or b"\0" in body[:2]:  # JSON begins with a character of ASCII
        raise Malformed("The body is UTF-16: send it in UTF-8.")
    try:
        return without_mark(body).decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"The body is not UTF-8 (at byte {error.start}): send it in UTF-8.") from None


def without_mark(body: bytes) -> bytes:
    """A text without the byte order mark that some editors and libraries write before UTF-8."""
    return body.removeprefix(codecs.BOM_UTF8)


def decode_json(text: str) -> Any:
    """One JSON value; objects are `JsonObject`, numbers `NumberLiteral`. Raises Malformed."""
    value, end = _decode_at(text, _skip(text, 0))
    _expect_end(text, end)
    return value


def cut_rows(text: str) -> list[str]:
    """The source text of each row of an array, or of the one value that is there. Raises Malformed."""
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        end = _decode_at(text, at)[1]
        _expect_end(text, end)
        return [text[at:end]]
    rows: list[str] = []
    at = _skip(text, at + 1)
    while rows or text[at : at + 1] != "]":
        end = _decode_at(text, at)[1]
        rows.append(text[at:end])
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise _malformed(at, "',' or ']' is expected")
        at = _skip(text, at + 1)
    _expect_end(text, at + 1)
    return rows


def _decode_at(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(error.pos, error.msg) from None
    except RecursionError:
        raise Malformed("The JSON is nested too deeply.") from None


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) < len(text):
        raise _malformed(at, "there is more after its end")


def _malformed(at: int, reason: str) -> Malformed:
    return Malformed(f"The body is not JSON: {reason} (at character {at}).")
