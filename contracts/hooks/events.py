"""The events that hooks send: their types, and their form as CloudEvents 1.0 in structured JSON.

Triggers of the database write the data of an event in the transaction of what it reports (`migrations`). Nothing here
decodes it again, so that an event of a newer release is sent as it was written.
"""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

MEDIA_TYPE = "application/cloudevents+json"

# Each type with its meaning. Those of cycles come from rows of `cycles`, all others from rows of `releases`.
EVENT_TYPES: Mapping[str, str] = {
    "morrow.version.released": "a cycle released a version",
    "morrow.version.rolled_back": "an earlier version answers again",
    "morrow.version.expiring": "less than a fifth of a window is left of the validity of the version that answers",
    "morrow.version.expired": "the validity of the version that answers has ended",
    "morrow.horizon.closed": "an error above its limit closed the horizon",
    "morrow.horizon.reopened": "a closed horizon is open again, by corrected labels or by an override",
    "morrow.horizon.overridden": "an admin set the end of a horizon that was not closed",
    "morrow.cycle.held": "a cycle held its candidate",
    "morrow.cycle.failed": "an attempt at a cycle failed",
}
# What `morrow hooks test` sends, to any hook.
TEST_TYPE = "morrow.hook.test"


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is sent; `time` is when it happened, `subject` the name that its task had then."""

    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str = "application/json"
    data: msgspec.Raw


def name_source(installation: str | None) -> str:
    """The source of all events of an installation. Together with its id, it tells an event from all others."""
    return f"morrow/{quote(installation or 'unnamed', safe='')}"
