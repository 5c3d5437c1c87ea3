"""Ask a served model over HTTP for predictions of rows whose labels are known here, and score its answers."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from cli.client.api import ask
from cli.file_rows.batches import batches

NUM_SINGLE = 200
ROWS_PER_BATCH = 1000
NUM_CONNECTIONS = 2
LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Score:
    """Mean log-loss and error rate of the answers, and the number of requests that they took."""

    log_loss: float
    error: float
    num_requests: int


def ask_and_score(api: httpx.Client, task: str, events: Sequence[dict[str, Any]]) -> Score:
    """Ask for the first rows one by one (GET) and for the rest in batches (POST). Raises Refused and Unreachable."""
    with ThreadPoolExecutor(NUM_CONNECTIONS) as connections:
        single = list(connections.map(lambda event: ask_one(api, task, event), events[:NUM_SINGLE]))
        rest = list(batches(events[NUM_SINGLE:], ROWS_PER_BATCH))
        many = list(connections.map(lambda batch: ask_many(api, task, batch), rest))
    answers = single + [answer for batch in many for answer in batch]
    losses = [-math.log(max(LEAST_PROBABILITY, probability)) for probability in _probabilities(answers, events)]
    errors = [answer["prediction"] != event["label"] for answer, event in zip(answers, events, strict=True)]
    return Score(
        log_loss=sum(losses) / len(losses),
        error=sum(errors) / len(errors),
        num_requests=len(single) + len(rest),
    )


def ask_one(api: httpx.Client, task: str, event: dict[str, Any]) -> dict[str, Any]:
    """One answer by GET; missing features are omitted."""
    features = {name: value for name, value in event["features"].items() if value is not None}
    answer: dict[str, Any] = ask(api, "GET", "/predict", params={"task": task, "at": event["at"], **features})
    return answer


def ask_many(api: httpx.Client, task: str, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to a batch by POST, in its order."""
    rows = [{"at": event["at"], "features": event["features"]} for event in events]
    answers: list[dict[str, Any]] = ask(api, "POST", "/predict", params={"task": task}, json={"rows": rows})["answers"]
    return answers


def _probabilities(answers: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> Iterator[float]:
    """The probability that each answer gave to the true class; 0 for a class that the model never saw."""
    for answer, event in zip(answers, events, strict=True):
        yield answer["probabilities"].get(event["label"], 0.0)
