"""The answers of the paths about erased and imported events; `service.admin.answers` encodes and documents them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from service.advice.import_options import ImportOptions
from service.validation.json_types import Count, Moment
from store.cycles import ledger
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


class FitRead(Struct, frozen=True, kw_only=True):
    """What the fit of a version has read: the rows known at `cutoff`, of those stored at `read_at`."""

    version: str
    cycle: Annotated[Count, Meta(description="id of the cycle that trained it")]
    state: Annotated[ledger.State, Meta(description="how that cycle ended")]
    cutoff: Moment
    read_at: Moment


class FitRow(Struct, frozen=True, kw_only=True):
    """An event as a fit has read it."""

    event_id: str
    revision: Annotated[int | None, Meta(description="null if the event was erased after that")]
    at: Annotated[Moment, Meta(description="of an erased event the start of its window, as every moment")]
    known_at: Moment
    received_at: Moment
    features: Annotated[
        dict[str, Any] | None,
        Meta(description="those of the task as it was then; null if the event was erased"),
    ]
    label: Annotated[str | float | None, Meta(description="null if the event was erased")]
    withheld: Annotated[bool, Meta(description="whether errors were measured on it instead of fitting it")]
    erased: Annotated[bool, Meta(description="whether it was erased after the fit has read its rows")]


class FitRows(FitRead, frozen=True, kw_only=True):
    """Rows by `at` and id."""

    num_rows: Annotated[Count, Meta(description="rows that were read, withheld ones included")]
    digest: Annotated[str, Meta(description="SHA-256 over every value of these rows, as the manifest has it")]
    num_erased_since: Annotated[
        Count, Meta(description="events of the task that were erased since; the fit may have read them")
    ]
    num_retracted_since: Annotated[
        Count,
        Meta(description="events that were retracted with their import since; the fit may have read them"),
    ]
    rows: list[FitRow]
    next: Annotated[str | None, Meta(description="`after` of the next page; null on the last one")]


class EventVersion(FitRead, frozen=True, kw_only=True):
    """A version whose fit has read the event."""

    revision: Annotated[int | None, Meta(description="the revision that it read; null if the event was erased since")]
    withheld: Annotated[bool, Meta(description="whether errors were measured on it instead of fitting it")]


class EventVersions(Struct, frozen=True, kw_only=True):
    """The newest cycle first."""

    event_id: str
    versions: list[EventVersion]
    next: Annotated[Count | None, Meta(description="`after` of the next page; null on the last one")]
