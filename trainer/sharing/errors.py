"""Errors of the object store that trainers share kept fits through."""

from contracts.errors import MorrowError, Unavailable


class ObjectStoreAway(Unavailable):
    """The object store does not answer."""


class ObjectLost(MorrowError):
    """The object store does not have this object as it was written."""
