"""What `morrow events erase` does and prints: as many ids a request as the API takes, and what became of them all."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from cli.client.api import ask, open_api
from cli.client.output import print_json
from cli.importing.importer import batches
from contracts.errors import Fault, InvalidInput
from service.web.fields import MAX_IDS


def read_ids(event_ids: Sequence[str], file: Path | None) -> list[str]:
    """Each id once: those given, and those of the lines of a file. Raises InvalidInput where there is none."""
    lines: list[str] = []
    if file is not None:
        try:
            lines = [line for line in map(str.strip, file.read_text(encoding="utf-8-sig").split("\n")) if line]
        except UnicodeDecodeError as error:
            raise InvalidInput([Fault(str(file), f"is not UTF-8: {error}")]) from error
    found = list(dict.fromkeys([*event_ids, *lines]))
    if not found:
        raise InvalidInput([Fault("event_ids", "none is given: name ids, or a file of them with --file")])
    return found


def erase(url: str, task: str, event_ids: Sequence[str], reason: str, actor: str | None, *, as_json: bool) -> bool:
    """Erase, and tell how much went and which versions have seen it; whether every id was known.

    Raises Refused and Unreachable; the same command goes on from there, for what is erased stays so.
    """
    given: dict[str, Any] = {"reason": reason} | ({} if actor is None else {"actor": actor})
    with open_api(url) as api:
        answers = [
            ask(api, "POST", f"/tasks/{task}/erasures", json={"event_ids": batch, **given})
            for batch in batches(event_ids, MAX_IDS)
        ]
    facts = _sum(answers)
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    return not facts["unknown"]


def many(number: int, noun: str) -> str:
    """A number of things in words."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _sum(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answers of several requests as one; versions ascending."""
    counts: Counter[str] = Counter()
    for answer in answers:
        counts.update({name: answer[name] for name in ("num_events", "num_revisions", "num_rejected")})
    results = [result for answer in answers for result in answer["results"]]
    return {
        **counts,
        "num_erased_before": sum(result["status"] == "erased_before" for result in results),
        "unknown": [result["event_id"] for result in results if result["status"] == "unknown"],
        "versions": sorted({version for answer in answers for version in answer["versions"]}, key=int),
        "erasures": [answer["id"] for answer in answers],
    }


def _print(facts: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{many(facts['num_events'], 'event')} erased in {many(facts['num_revisions'], 'revision')}, "
        f"and {many(facts['num_rejected'], 'refused row')}; {facts['num_erased_before']:,} were erased before."
    )
    if facts["unknown"]:
        console.print(f"Not stored: {', '.join(facts['unknown'])}.", markup=False, style="red")
    if facts["versions"]:
        console.print(f"Trained on them: {', '.join(facts['versions'])}. They answer as before until a newer one does.")
