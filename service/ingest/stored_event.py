"""GET /events/{event_id}: one stored event, in the form in which PUT takes it back, with its ETag."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contracts.clock import format_moment, to_micros
from service.validation.json_types import Moment
from service.web.encoded_answer import EncodedAnswer
from service.web.preconditions import etag_line
from store.events.stored_event import StoredEvent


class EventContent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as POST and PUT take it."""

    event_id: str
    at: Moment
    known_at: Moment | UnsetType = UNSET
    features: Annotated[dict[str, Any], Meta(description="those of its form; null if missing")]
    label: Annotated[str | float, Meta(description="absent until it comes")] | UnsetType = UNSET


class EventFound(msgspec.Struct, frozen=True, kw_only=True):
    """The present revision of an event."""

    event: EventContent
    revision: Annotated[
        int,
        Meta(
            description="the first is 1, and each correction adds one; without a label it is 0, and each correction "
            "takes one away"
        ),
    ]
    received_at: Moment
    import_id: Annotated[int | None, Meta(description="the import that its first revision came with")] = msgspec.field(
        name="import"
    )


def answer_event(found: StoredEvent) -> EncodedAnswer:
    """The answer, whose ETag is the number of the revision."""
    return EncodedAnswer(msgspec.json.encode(describe_event(found)), head=etag_line(found.revision))


def describe_event(found: StoredEvent) -> EventFound:
    """An event as it is shown, alone or in a list."""
    content = EventContent(
        event_id=found.event_id,
        at=format_moment(to_micros(found.at)),
        known_at=UNSET if found.known_at is None else format_moment(to_micros(found.known_at)),
        features=found.features,
        label=UNSET if found.label is None else found.label,
    )
    return EventFound(
        event=content,
        revision=found.revision,
        received_at=format_moment(to_micros(found.received_at)),
        import_id=found.import_id,
    )
