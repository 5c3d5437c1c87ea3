"""Errors that only benchmarks raise: leaves of the tree in `contracts.errors`."""

from contracts.errors import MorrowError


class LoadFailed(MorrowError):
    """The load generator did not come to an end."""


class NotReleased(MorrowError):
    """The cycle ended without a version."""


class NotSwapped(MorrowError):
    """The load ended before the new version answered."""


class PgbenchFailed(MorrowError):
    """pgbench did not come to an end."""


class ServerSilent(MorrowError):
    """A server did not answer in time."""


class Stuck(MorrowError):
    """Something that had to come about did not."""
