"""Moments of many rows: read at once if all have one format, as those of one producer do, else one by one."""

import re
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from contracts.clock import parse_moment
from service.validation.values import FIRST_MICRO, LAST_MICRO

_SHAPE = re.compile(r"0000-00-00T00:00(:00(\.0{1,6})?)?(Z|[+-]00:00)")
_AS_ZERO = str.maketrans("123456789", "000000000")
_MINUTE = 60_000_000
_FEW = 32  # up to this number, reading one by one is as fast as NumPy's calls


def parse_moments(texts: Sequence[str]) -> NDArray[np.int64]:
    """`parse_moment` of each, `(n,)`. Raises ValueError."""
    written = _lay_out(texts) if len(texts) > _FEW else None
    if written is not None:
        with suppress(ValueError):  # one by one, the words of the error are for producers
            return _read(written)
    return np.array([parse_moment(text) for text in texts], np.int64)


def _lay_out(texts: Sequence[str]) -> NDArray[np.uint8] | None:
    """The characters of texts of one format, `(n, width)`; None if their formats differ."""
    joined = "".join(texts)
    shape = joined[: len(joined) // max(len(texts), 1)].translate(_AS_ZERO)
    if not _SHAPE.fullmatch(shape) or joined.translate(_AS_ZERO) != shape * len(texts):
        return None
    if set(map(len, texts)) != {len(shape)}:
        return None
    return np.frombuffer(joined.encode(), np.uint8).reshape(len(texts), len(shape))


def _read(written: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Moments of one format. Raises ValueError if one is not in the calendar."""
    in_utc = written[0, -1] == ord("Z")
    local = np.ascontiguousarray(written[:, : -1 if in_utc else -6])
    micros = local.view(f"S{local.shape[1]}")[:, 0].astype("datetime64[us]").astype(np.int64)
    _require_calendar(micros)
    if in_utc:
        return micros
    ten_hours, hours, ten_minutes, minutes = written[:, [-5, -4, -2, -1]].T - np.int64(ord("0"))
    offset = (ten_hours * 10 + hours) * 60 + ten_minutes * 10 + minutes
    if offset.max() >= 24 * 60 or ten_minutes.max() > 5:
        raise ValueError("is not an offset")
    micros -= np.where(written[:, -6] == ord("-"), -offset, offset) * _MINUTE
    _require_calendar(micros)
    return micros


def _require_calendar(micros: NDArray[np.int64]) -> None:
    if micros.min() < FIRST_MICRO or micros.max() > LAST_MICRO:
        raise ValueError("is outside the calendar")
