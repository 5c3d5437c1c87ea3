"""Answers to the rows of a file: they are asked in batches, and written as they come.

The API answers a batch as a whole or refuses it, naming the faulty rows. Those are put aside with their reasons, and
the others are asked again.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec
from rich.console import Console

from cli.client.api import ask, ask_patiently, open_api
from cli.client.output import row_progress
from cli.errors import Refused as ApiRefused
from cli.file_rows.batches import batch_rows
from cli.file_rows.formats import Format
from cli.file_rows.opened_file import open_rows
from cli.file_rows.reasons import Reason, Refused, add_reasons, find_id, prefer_ours
from cli.file_rows.rejects import append_rejects, cut_rejects, keep_edited, name_rejects
from cli.file_rows.rows import Row
from cli.predicting.answer_file import Answered, AnswerFile, choose_format, name_part
from cli.predicting.bookmark import Asked, Bookmark, name_bookmark, read_bookmark, write_bookmark
from cli.reading.options import Options
from cli.reading.sources import name_of
from contracts.errors import Fault, InvalidInput, MorrowError
from contracts.shown import say_count
from contracts.task import Task

_PLACE = re.compile(r"rows\[(\d+)\](?:\.(.+))?")


@dataclass(frozen=True)
class Predicted:
    """What became of the rows of a file, and which versions answered. An earlier command had done `num_before` rows.

    `num_unpromised` answers are of moments up to the newest row of the fit, so they have no expected error. `unseen`
    counts the answers to categories that a version's fit has hardly seen, by feature.
    """

    num_rows: int
    num_before: int
    num_answered: int
    seconds: float
    answers: Path
    rejects: Path | None
    versions: tuple[str, ...]
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    num_unpromised: int = 0
    trained_until: str | None = None
    unseen: Mapping[str, int] = field(default_factory=dict)


def predict_file(
    url: str,
    task_name: str,
    file: Path,
    answers: Path,
    *,
    format: Format | None,
    options: Options,
    at: str | None = None,
    coverage: float | None = None,
) -> Predicted:
    """Ask about every row of a file, from where an earlier command broke off, and write the answers.

    `at` (RFC 3339) is the moment of all rows; None if each has its own. Raises InvalidInput, Refused, Unreachable and
    Unavailable.
    """
    choose_format(answers)
    began = time.monotonic()
    place = name_bookmark(answers)
    needed = ("at",) if at is None else ()
    with (
        open_api(url) as api,
        open_rows(file, format, _find_asked(api, task_name), options, lambda: None, needed_values=needed) as opened,
        row_progress() as progress,
    ):
        rejects = name_rejects(answers, answers.parent, is_csv=opened.format == "csv")
        _require_apart(file, [rejects, place, name_part(answers)])
        with AnswerFile(answers, opened.task, columns=opened.columns, has_ids=not opened.has_row_ids) as answer_file:
            asked = Asked(url, task_name, opened.digest(), answer_file.columns, repr(options), at, coverage)
            mark = read_bookmark(place, asked)
            if not answer_file.resume(mark.num_bytes):
                mark = Bookmark(asked)
            first = mark.num_rows
            notes = list(opened.notes)
            if (kept := keep_edited(rejects)) is not None:
                mark = msgspec.structs.replace(mark, rejects_bytes=0)
                notes.append(kept)
            for note in (*notes, *([f"Resuming after {say_count(first, 'row')}."] if first else [])):
                progress.console.print(note, markup=False, highlight=False, soft_wrap=True)
            bar = progress.add_task(name_of(file), total=opened.length, rows=first, rate=0.0)
            questions = _Questions(api, task_name, at, coverage)
            try:
                cut_rejects(rejects, mark.rejects_bytes)
                for batch in batch_rows(islice(opened.rows, first, None)):
                    answered, refused = questions.ask(batch)
                    mark = _record(mark, batch, answered, refused, answer_file=answer_file, rejects=rejects)
                    write_bookmark(place, mark)
                    rate = (mark.num_rows - first) / (time.monotonic() - began)
                    progress.update(bar, completed=opened.position(mark.num_rows), rows=mark.num_rows, rate=rate)
                answer_file.finish()
                place.unlink(missing_ok=True)
            except (MorrowError, KeyboardInterrupt):
                _say_how_to_go_on(progress.console, mark)
                raise
    return Predicted(
        num_rows=mark.num_rows,
        num_before=first,
        num_answered=mark.num_answered,
        seconds=time.monotonic() - began,
        answers=answers,
        rejects=rejects if mark.rejects_bytes else None,
        versions=mark.versions,
        reasons=tuple(sorted(mark.reasons.values(), key=lambda reason: -reason.count)),
        notes=tuple(notes),
        num_unpromised=mark.num_unpromised,
        trained_until=mark.trained_until,
        unseen=mark.unseen,
    )


def _require_apart(file: Path, written: Sequence[Path]) -> None:
    """Raises InvalidInput if the file to read is one of those that are written besides the answers."""
    for path in written:
        if path.exists() and file.exists() and path.samefile(file):
            reason = f"would write its other rows or notes to {path}, which is the file to read: choose another name"
            raise InvalidInput([Fault("--out", reason)])


def _find_asked(api: httpx.Client, name: str) -> Task:
    """The task in the form of the version that answers. Raises InvalidInput if none has been released."""
    champion = ask(api, "GET", f"/tasks/{name}")["champion"]
    if champion is None:
        raise InvalidInput([Fault("task", f"{name} has no version yet: morrow cycle {name}")])
    return Task.model_validate(ask(api, "GET", f"/tasks/{name}/models/{champion['version']}")["task"])


@dataclass(frozen=True)
class _Questions:
    """Asks about rows of one task, all at one moment if `at` is given."""

    api: httpx.Client
    task: str
    at: str | None
    coverage: float | None

    def ask(self, batch: Sequence[Row]) -> tuple[list[Answered], list[Refused]]:
        """The rows that are answered, and those that are not, each in the order of the file."""
        refused: dict[int, Refused] = {}
        questions: dict[int, dict[str, Any]] = {}
        for place, row in enumerate(batch):
            if not row.is_sent:
                refused[place] = _refuse(row, row.faults)
                continue
            try:
                questions[place] = self._make_question(row)
            except InvalidInput as error:
                refused[place] = _refuse(row, error.faults)
        answers: list[dict[str, Any]] = []
        while questions and not answers:
            try:
                answers = self._post(list(questions.values()))
            except ApiRefused as error:
                faulty = _find_faulty(error, list(questions))
                if not faulty:
                    raise
                for place, faults in faulty.items():
                    refused[place] = _refuse(batch[place], prefer_ours(batch[place], faults))
                    del questions[place]
        answered = [(batch[place], answer) for place, answer in zip(questions, answers, strict=True)]
        return answered, [refused[place] for place in sorted(refused)]

    def _make_question(self, row: Row) -> dict[str, Any]:
        """The question of a row. Raises InvalidInput if it cannot be asked."""
        try:
            event = msgspec.json.decode(row.line)
            return {"at": self.at or event["at"], "features": event["features"]}
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise InvalidInput([Fault("row", "is not JSON")]) from None
        except (KeyError, TypeError):
            reason = "is no object with features and a moment `at`: to ask about one moment, give --at"
            raise InvalidInput([Fault("row", reason)]) from None

    def _post(self, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        params = {"task": self.task} | ({} if self.coverage is None else {"coverage": str(self.coverage)})
        body = msgspec.json.encode({"rows": questions})
        headers = {"content-type": "application/json"}
        answer = ask_patiently(self.api, "POST", "/predict", params=params, content=body, headers=headers)
        answers: list[dict[str, Any]] = answer["answers"]
        return answers


def _find_faulty(error: ApiRefused, places: Sequence[int]) -> dict[int, list[Fault]]:
    """The faults of each row that a refusal names, by its place in the batch; empty if it names none."""
    found: dict[int, list[Fault]] = {}
    for fault in error.problem.get("errors", []):
        if (named := _PLACE.fullmatch(fault["field"])) is not None:
            found.setdefault(places[int(named[1])], []).append(Fault(named[2] or "row", fault["reason"]))
    return found


def _refuse(row: Row, faults: Sequence[Fault]) -> Refused:
    return Refused(row, find_id(row), faults)


def _record(
    mark: Bookmark,
    batch: Sequence[Row],
    answered: Sequence[Answered],
    refused: Sequence[Refused],
    *,
    answer_file: AnswerFile,
    rejects: Path,
) -> Bookmark:
    """The bookmark behind a batch, once its answers and its refused rows are written. Raises Unavailable."""
    num_bytes = answer_file.append(answered)
    unseen = Counter(mark.unseen) + Counter(name for _, answer in answered for name in answer.get("unseen", ()))
    rejects_bytes = append_rejects(rejects, [(one.row, one.sentence) for one in refused])
    return msgspec.structs.replace(
        mark,
        num_rows=mark.num_rows + len(batch),
        num_answered=mark.num_answered + len(answered),
        num_bytes=num_bytes,
        rejects_bytes=rejects_bytes,
        versions=tuple(dict.fromkeys([*mark.versions, *(answer["version"] for _, answer in answered)])),
        reasons=add_reasons(mark.reasons, refused),
        num_unpromised=mark.num_unpromised + sum(answer["expected_error"] is None for _, answer in answered),
        trained_until=answered[-1][1]["trained_until"] if answered else mark.trained_until,
        unseen=dict(unseen),
    )


def _say_how_to_go_on(console: Console, mark: Bookmark) -> None:
    if mark.num_rows and mark.asked.digest is not None:
        words = f"{say_count(mark.num_rows, 'row')} done. Run the same command to resume."
        console.print(words, highlight=False)
