"""The import of a file: events go to the API in batches, over a few connections at once, and outcomes are counted.

Answers are processed in the order of the file. So one number says how far an import has come
(`cli.importing.bookmark`), and refused rows keep the order of the file (`cli.file_rows.rejects`).
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import msgspec
from rich.console import Console

from cli.client.api import ask, ask_patiently, open_api
from cli.client.output import row_progress
from cli.file_rows.batches import batch_rows
from cli.file_rows.checks import check_rows
from cli.file_rows.formats import Format
from cli.file_rows.opened_file import OpenedFile, open_rows
from cli.file_rows.reasons import Reason, Refused, add_reasons, find_refused_rows
from cli.file_rows.rejects import append_rejects, cut_rejects, keep_edited, name_rejects
from cli.file_rows.rows import Row, encode_row
from cli.importing.bookmark import Bookmark, Source, describe_source, name_bookmark, read_bookmark, write_bookmark
from cli.importing.earlier import (
    MAX_SOURCE,
    Identified,
    are_stored,
    explain_conflicts,
    find_earlier,
    find_identified,
    take_conflicts,
)
from cli.reading.options import Options, name_options
from cli.reading.sources import is_pipe, name_of
from contracts.errors import MorrowError
from contracts.shown import say_count
from contracts.task import Task
from service.advice.import_options import ImportOptions, can_be_kept

NUM_CONNECTIONS = 3
# First rows of a file, some of which show whether its content is stored under the same ids.
NUM_LOOKED_AT = 1000
OUTCOMES = ("created", "duplicates", "conflicts", "rejected")
# Reported only if there were any.
RARE_OUTCOMES = ("unlabelled", "erased")
NDJSON = {"content-type": "application/x-ndjson"}


@dataclass(frozen=True)
class Imported:
    """The outcome of an import. An earlier, broken import had sent the first `num_before` rows.

    `num_equal` counts rows that equal an earlier one of the file, if ids are digests of rows. `differences` say in
    which fields conflicting rows differ from stored events. A trial has no id. `has_row_ids` says whether ids are
    digests of whole rows.
    """

    num_rows: int
    num_before: int
    counts: dict[str, int]
    seconds: float
    rejects: Path | None
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    differences: tuple[str, ...]
    num_equal: int
    import_id: int | None
    has_row_ids: bool

    @property
    def rate(self) -> float:
        """Rows per second of this import alone."""
        return (self.num_rows - self.num_before) / self.seconds


def import_events(
    url: str,
    task_name: str,
    file: Path,
    folder: Path,
    *,
    format: Format | None,
    options: Options,
    again: bool = False,
) -> Imported:
    """Post a file, from where an earlier import of it broke off. Refused rows and the bookmark go to `folder`.

    Content that was imported before with other options is refused, and so are rows without the ids that events of
    earlier imports have; `again` stores them nevertheless.
    A progress bar is shown on standard error. Raises InvalidInput, Refused, Unreachable and Unavailable.
    """
    place = None if is_pipe(file) else name_bookmark(file, folder)
    began = time.monotonic()
    with open_api(url) as api, _open(api, task_name, file, format, options) as opened, row_progress() as progress:
        rejects = name_rejects(Path(name_of(file)), folder, is_csv=opened.format == "csv")
        mark = _find_open_mark(api, progress.console, place, url=url, task=task_name, file=file)
        digest = opened.digest()
        earlier = find_earlier(api, task_name, file, mark.import_id, digest)
        found, stored = opened.rows, True
        if mark.num_rows == 0 and earlier is not None and earlier.is_same_content:
            head = [*islice(found, NUM_LOOKED_AT)]
            found, stored = chain(head, found), are_stored(api, task_name, head)
        notes = [] if earlier is None else [earlier.note]
        print_notes(progress.console, [*opened.notes, *(notes if stored or again else [])])
        if mark.import_id is None and not again and (identified := _find_identified(api, opened)) is not None:
            _leave(progress.console, mark, place)
            raise identified.refuse()
        if earlier is not None and not (stored or again):
            _leave(progress.console, mark, place)
            raise earlier.refuse()
        if mark.import_id is None:
            mark = _begin(api, task_name, file, mark, digest=digest, options=name_options(options, format))
        if (kept := keep_edited(rejects)) is not None:
            mark = msgspec.structs.replace(mark, rejects_bytes=0)
            notes.append(kept)
            print_notes(progress.console, [kept])
        first = mark
        cut_rejects(rejects, mark.rejects_bytes)
        conflicts: list[Refused] = []
        bar = progress.add_task(name_of(file), total=opened.length, rows=mark.num_rows, rate=0.0)
        if mark.num_rows:
            progress.console.print(f"Resuming after {say_count(mark.num_rows, 'row')}.", highlight=False)
        rows = islice(found, mark.num_rows, None)
        try:
            for batch, answer in post_rows(api, task_name, rows, mark.import_id):
                refused = find_refused_rows(batch, answer["results"])
                mark = _record(mark, batch, answer, refused=refused, rejects=rejects, place=place)
                conflicts = take_conflicts(conflicts, refused)
                rate = (mark.num_rows - first.num_rows) / (time.monotonic() - began)
                at = opened.position(mark.num_rows)
                progress.update(bar, completed=at, rows=mark.num_rows, rate=rate)
        except (MorrowError, KeyboardInterrupt):
            _leave(progress.console, mark, place)
            raise
        differences = explain_conflicts(api, task_name, conflicts)
    if place is not None:
        place.unlink(missing_ok=True)
    shown = (*OUTCOMES, *(outcome for outcome in RARE_OUTCOMES if outcome in mark.counts))
    return Imported(
        num_rows=mark.num_rows,
        num_before=first.num_rows,
        counts={outcome: mark.counts.get(outcome, 0) for outcome in shown},
        seconds=time.monotonic() - began,
        rejects=rejects if mark.rejects_bytes else None,
        reasons=tuple(sorted(mark.reasons.values(), key=lambda reason: -reason.count)),
        notes=(*opened.notes, *notes),
        differences=tuple(differences),
        num_equal=opened.num_equal(),
        import_id=mark.import_id,
        has_row_ids=opened.has_row_ids,
    )


def try_import(url: str, task_name: str, file: Path, *, format: Format | None, options: Options) -> Imported:
    """Read a whole file and check every row by the task's rules, without storing any. Raises as `import_events`.

    Which rows are stored already only the API can know, so all valid ones count as created.
    """
    began = time.monotonic()
    counts: Counter[str] = Counter()
    reasons: dict[str, Reason] = {}
    with open_api(url) as api, _open(api, task_name, file, format, options) as opened:
        earlier = find_earlier(api, task_name, file, None, opened.digest())
        identified = _find_identified(api, opened)
        for batch in batch_rows(opened.rows):
            refused = find_refused_rows(batch, check_rows(batch, opened.task))
            reasons = add_reasons(reasons, refused)
            counts.update({"created": len(batch) - len(refused), "rejected": len(refused)})
        return Imported(
            num_rows=counts.total(),
            num_before=0,
            counts={outcome: counts[outcome] for outcome in OUTCOMES},
            seconds=time.monotonic() - began,
            rejects=None,
            reasons=tuple(sorted(reasons.values(), key=lambda reason: -reason.count)),
            notes=(*opened.notes, *(one.note for one in (earlier, identified) if one is not None)),
            differences=(),
            num_equal=opened.num_equal(),
            import_id=None,
            has_row_ids=opened.has_row_ids,
        )


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Say how a file is read."""
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _open(
    api: httpx.Client, task_name: str, file: Path, format: Format | None, options: Options
) -> Iterator[OpenedFile]:
    """The file read for the task, or for the features of its champion if it has not got those of a newer revision."""
    answer = ask(api, "GET", f"/tasks/{task_name}")
    task = Task.model_validate(answer["spec"])
    with open_rows(file, format, task, options, lambda: _find_earlier(api, task, answer["champion"])) as opened:
        yield opened


def _find_identified(api: httpx.Client, opened: OpenedFile) -> Identified | None:
    """An earlier import with ids of its own, if the rows of this file have none."""
    return find_identified(api, opened.task.name) if opened.has_row_ids else None


def _find_earlier(api: httpx.Client, task: Task, champion: dict[str, Any] | None) -> Task | None:
    """The task with the features of the version that answers, in whose form rows may still come; None if the same."""
    if champion is None:
        return None
    spec = ask(api, "GET", f"/tasks/{task.name}/models/{champion['version']}")["task"]
    earlier = Task.model_validate(spec)
    return None if earlier.features == task.features else task.model_copy(update={"features": earlier.features})


def _find_open_mark(
    api: httpx.Client, console: Console, place: Path | None, *, url: str, task: str, file: Path
) -> Bookmark:
    """The bookmark of the import that had begun with this file, or one without an import."""
    mark = _find_start(place, url, task, file)
    if mark.import_id is not None and not _is_open(api, task, mark):
        note = f"Import {mark.import_id}, which had begun with this file, is retracted or gone: the file begins again."
        console.print(note, highlight=False, soft_wrap=True)
        mark = Bookmark(mark.source)
    return mark


def _record(
    mark: Bookmark,
    batch: Sequence[Row],
    answer: dict[str, Any],
    *,
    refused: Sequence[Refused],
    rejects: Path,
    place: Path | None,
) -> Bookmark:
    """The bookmark behind a batch that was answered, once its refused rows are in `rejects`."""
    rejects_bytes = append_rejects(rejects, [(one.row, one.sentence) for one in refused])
    mark = _advance(mark, batch, answer, refused, rejects_bytes)
    if place is not None:
        write_bookmark(place, mark)
    return mark


def _leave(console: Console, mark: Bookmark, place: Path | None) -> None:
    """Say how an import that breaks off goes on; one that has sent nothing leaves no bookmark."""
    if mark.num_rows:
        remedy = "Run the same command to resume." if place else "Sent again, they count as duplicates."
        console.print(f"{say_count(mark.num_rows, 'row')} sent. {remedy}", highlight=False)
    elif place is not None:
        place.unlink(missing_ok=True)


def _find_start(place: Path | None, url: str, task: str, file: Path) -> Bookmark:
    """Where to go on. A bookmark is written at once, so that a folder that cannot be written to is noticed."""
    if place is None:
        return Bookmark(Source(url, task, 0, 0))
    mark = read_bookmark(place, describe_source(url, task, file))
    write_bookmark(place, mark)
    return mark


def _is_open(api: httpx.Client, task: str, mark: Bookmark) -> bool:
    """Whether rows can still join the import of a bookmark: a retracted one takes none, and a deleted task has none."""
    return any(
        one["id"] == mark.import_id and one["retracted_at"] is None and mark.began_at in (None, one["at"])
        for one in ask(api, "GET", f"/tasks/{task}/imports")["imports"]
    )


def _begin(
    api: httpx.Client, task: str, file: Path, mark: Bookmark, *, digest: str | None, options: ImportOptions
) -> Bookmark:
    """The bookmark with a new import."""
    given: dict[str, Any] = {"source": name_of(file)[:MAX_SOURCE]} | ({} if digest is None else {"digest": digest})
    if can_be_kept(options):
        given["options"] = msgspec.to_builtins(options)
    begun = ask(api, "POST", f"/tasks/{task}/imports", json=given)
    return msgspec.structs.replace(mark, import_id=begun["id"], began_at=begun["at"])


def post_rows(
    api: httpx.Client, task: str, rows: Iterable[Row], import_id: int | None = None
) -> Iterator[tuple[list[Row], dict[str, Any]]]:
    """Each batch with its answer of POST /events, in order. Raises Refused and Unreachable.

    A batch that is sent again after a lost answer changes nothing: its events have ids.
    """
    params: dict[str, str | int] = {"task": task} | ({} if import_id is None else {"import": import_id})
    waiting: deque[tuple[list[Row], Future[dict[str, Any]]]] = deque()
    is_over = Event()
    with ThreadPoolExecutor(NUM_CONNECTIONS) as connections:
        try:
            for batch in batch_rows(rows):
                waiting.append((batch, connections.submit(_post, api, params, batch, is_over)))
                if len(waiting) > NUM_CONNECTIONS:
                    oldest, answer = waiting.popleft()
                    yield oldest, answer.result()
            for batch, answer in waiting:
                yield batch, answer.result()
        finally:  # nobody waits for the pauses of other requests
            is_over.set()


def _post(api: httpx.Client, params: Mapping[str, str | int], batch: Sequence[Row], is_over: Event) -> dict[str, Any]:
    body = b"\n".join(row.line for row in batch if row.is_sent)
    if not body:
        return {"results": []}
    answer: dict[str, Any] = ask_patiently(
        api, "POST", "/events", is_over=is_over, params=params, content=body, headers=NDJSON
    )
    return answer


def post_events(api: httpx.Client, task: str, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers of POST /events to batches of events. Their results name the events that were not created."""
    for _, answer in post_rows(api, task, map(encode_row, events)):
        yield answer


def _advance(
    mark: Bookmark, batch: Sequence[Row], answer: dict[str, Any], refused: Sequence[Refused], rejects_bytes: int
) -> Bookmark:
    counts = Counter(mark.counts) + Counter(
        {outcome: answer.get(outcome, 0) for outcome in (*OUTCOMES, *RARE_OUTCOMES)}
    )
    counts["rejected"] += sum(not row.is_sent for row in batch)
    return msgspec.structs.replace(
        mark,
        num_rows=mark.num_rows + len(batch),
        counts=dict(counts),
        rejects_bytes=rejects_bytes,
        reasons=add_reasons(mark.reasons, refused),
    )
