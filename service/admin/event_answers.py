"""The answers of the paths about erased and imported events; `service.admin.answers` encodes and documents them."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.advice.import_options import ImportOptions
from service.validation.json_types import Count, Moment
from store.events import erasures


class Erasure(Struct, frozen=True, kw_only=True):
    """One request to erase events."""

    id: Count
    at: Moment
    actor: str
    reason: str
    num_events: Annotated[Count, Meta(description="events that this request erased")]
    num_revisions: Count
    num_rejected: Annotated[Count, Meta(description="stored refused rows with these ids")]
    num_predictions: Annotated[Count, Meta(description="logged answers with these ids")]


class Erasures(Struct, frozen=True):
    """Newest first."""

    erasures: list[Erasure]


class ErasedEvent(Struct, frozen=True):
    """The outcome for one id."""

    event_id: str
    status: erasures.Erased


class ErasureResult(Erasure, frozen=True, kw_only=True):
    """An erasure that was just made."""

    versions: Annotated[list[str], Meta(description="released versions that were trained on any of the events")]
    results: list[ErasedEvent]


class Import(Struct, frozen=True, kw_only=True):
    """Rows that came together."""

    id: Count
    at: Moment
    actor: str
    source: Annotated[str, Meta(description="the file, or whatever the sender calls it")]
    digest: Annotated[str | None, Meta(description="a digest of the file's content, if the sender gave one")]
    options: Annotated[ImportOptions | None, Meta(description="how the file was read, if the sender said so")]
    retracted_at: Moment | None
    retraction_actor: str | None
    retraction_reason: str | None
    num_retracted: Annotated[Count, Meta(description="events that were retracted")]


class ListedImport(Import, frozen=True, kw_only=True):
    """An import in a list. Counts are there if `counted=true` asks for them."""

    num_events: Annotated[Count, Meta(description="events as they came, which a retraction removes")] | UnsetType = (
        UNSET
    )
    num_corrected: Annotated[Count, Meta(description="events that were corrected since")] | UnsetType = UNSET


class Imports(Struct, frozen=True):
    """Newest first."""

    imports: list[ListedImport]


class ImportContent(Import, frozen=True, kw_only=True):
    """An import, and what is left of it."""

    num_events: Annotated[Count, Meta(description="events as they came, which a retraction removes")]
    num_corrected: Annotated[Count, Meta(description="events that were corrected since, which a retraction keeps")]
    versions: Annotated[list[str], Meta(description="released versions that were trained on any of the events")]
    warnings: Annotated[list[str], Meta(description="what stands out among the task's newest rows, of any import")]
