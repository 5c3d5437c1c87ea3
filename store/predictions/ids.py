"""Ids of predictions: UUIDs of version 7 (RFC 9562), which sort by time and hold 74 random bits.

The system is asked for random bytes in blocks, because one call for each answer would cost more than the rest of it.
"""

import os
from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLISECOND = 2**48 - 1
# Random bytes of an id, and how many ids a block is for.
_TAIL = 10
_BLOCK = 256
# The first of these bytes holds the version, the third the variant.
_VERSION = bytes(0x70 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))


class PredictionIds:
    """Makes ids in any thread of a process. A forked process must not inherit one."""

    def __init__(self) -> None:
        self._tails: list[bytes] = []

    def make(self, now: int) -> bytes:
        """The 16 bytes of a new id; `now` in microseconds since the epoch."""
        try:
            tail = self._tails.pop()
        except IndexError:
            tail = self._draw()
        return (now // 1000).to_bytes(6) + tail

    def _draw(self) -> bytes:
        block = bytearray(os.urandom(_TAIL * _BLOCK))
        block[0::_TAIL] = block[0::_TAIL].translate(_VERSION)
        block[2::_TAIL] = block[2::_TAIL].translate(_VARIANT)
        drawn = bytes(block)
        self._tails.extend([drawn[place : place + _TAIL] for place in range(_TAIL, len(drawn), _TAIL)])
        return drawn[:_TAIL]


def format_id(prediction_id: bytes) -> bytes:
    """The id as answers show it, in ASCII."""
    text = prediction_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


def read_id(text: str) -> UUID | None:
    """The id that a text shows; None if no prediction can have it."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if found.version == 7 and str(found) == text.lower() else None


def first_id(moment: datetime) -> UUID:
    """The least id that an answer of this moment, or of a later one, can have."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(milliseconds, 0), _LAST_MILLISECOND) << 80)


def moment_of(prediction_id: UUID) -> datetime:
    """When the answer was given, to the millisecond. Raises OverflowError beyond the calendar."""
    return _EPOCH + timedelta(milliseconds=prediction_id.int >> 80)
