"""Settings of the service: environment variables with the prefix MORROW_."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from contracts.runtime.cores import count_cores, share_cores
from contracts.runtime.settings import SharedSettings

MAX_WORKERS = 64
MAX_THREADS = 64
# A client with more batches than this before its own has usually given up.
MAX_WAITING_PER_THREAD = 32
BODY_BUDGET_BYTES = 64 * 2**20


def _batch_threads(known: dict[str, Any]) -> int:
    """One thread for each core of a worker."""
    return min(MAX_THREADS, share_cores(count_cores(), known.get("workers", 1)))


def _body_budget(known: dict[str, Any]) -> int:
    """Room for a few of the largest bodies."""
    most: int = known.get("max_body_bytes", 0)
    return max(BODY_BUDGET_BYTES, most)


def _read_list(value: object) -> object:
    """A JSON list, or words with commas between them."""
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(f'{value} is no list: write ["docs", "metrics"] or docs,metrics') from None
    return [word for part in value.split(",") if (word := part.strip())]


class ServiceSettings(SharedSettings):
    """Settings of an API: of one process, or of each of its workers."""

    host: str = Field(
        "127.0.0.1", description="address to listen on; beyond the loopback, requests are refused until there is a key"
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on")
    workers: int = Field(
        1,
        ge=1,
        le=MAX_WORKERS,
        description="processes that answer in parallel; each grants an equal share of a key's rate",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=1000,
        description="most APIs of this kind that share the requests of clients, on this and on other machines; each "
        "grants an equal share of a key's rate",
    )
    cycles_per_day: int | None = Field(
        None,
        ge=1,
        description="most cycles of a task within 24 hours, those of its schedule included, beyond which a request for "
        "another is answered 429; if unset, any number",
    )
    rows_per_task: int | None = Field(
        None,
        ge=1,
        description="most events that a task holds, beyond which new ones are answered 429; if unset, any number",
    )
    log_predictions: bool = Field(
        True, description="whether answers are logged; `log` of each task says which, and for how long"
    )
    stale_seconds: float = Field(
        60.0,
        gt=0,
        description="seconds, and at least two polls, that a worker may serve an old version after another worker has "
        "loaded the new one; it then exits and is replaced",
    )
    poll_seconds: float = Field(2.0, gt=0, le=3600, description="pause between two polls of registry and releases")
    allow_anonymous: bool = Field(
        False,
        description="answer every client while there is no key, on any address; for use behind a checking proxy",
    )
    mlflow_link: str | None = Field(
        None,
        description="address of MLflow for people's browsers, to which the pages link; if unset, MORROW_MLFLOW_URL",
    )
    public: Annotated[tuple[Literal["docs", "metrics"], ...], NoDecode, BeforeValidator(_read_list)] = Field(
        (), description="paths that need no key: docs, metrics (a JSON list, or words with commas)"
    )
    trusted_proxies: str = Field(
        "127.0.0.1",
        description="addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto count, with commas; * for all",
    )
    max_body_bytes: int = Field(16 * 2**20, ge=1024, description="largest request body; a larger one is answered 413")
    body_budget_bytes: int = Field(
        default_factory=_body_budget,
        description="bytes of bodies that a worker holds at once, over all connections; further bodies are answered "
        "503 before they are read. Bodies of up to 64 KiB do not count. If unset, 64 MiB, or MORROW_MAX_BODY_BYTES if "
        "that is more",
    )
    body_seconds: float = Field(30.0, gt=0, description="longest pause between two pieces of a body; then 408")
    keep_alive_seconds: float = Field(
        120.0,
        ge=1,
        description="seconds that a connection stays open without a request; must exceed the idle time after which "
        "proxies and clients drop a connection",
    )
    access_log: Literal["all", "sampled", "off"] = Field(
        "sampled",
        description="which answers are logged as request.answered. sampled: at most 20 successes and 20 refusals a "
        "second of each worker, and a count of the others",
    )
    queue_size: int = Field(
        1000,
        ge=1,
        description="most events, and most requests for the database, that may wait; more are answered 503",
    )
    max_rows: int = Field(10_000, ge=1, description="most rows in one request, whether events or questions")
    model_threads: int = Field(1, ge=1, le=MAX_THREADS, description="threads that one run of a graph may use")
    models_in_memory: int = Field(
        200,
        ge=1,
        description="most versions that a worker keeps in memory; those asked for longest ago leave it, and are read "
        "from disk at the next question",
    )
    batch_threads: int = Field(
        default_factory=_batch_threads,
        ge=1,
        le=MAX_THREADS,
        description="batches of POST /predict that a worker answers in parallel; if unset, the cores that the process "
        "may use (control group's quota, affinity) divided by the workers. "
        f"For each of them {MAX_WAITING_PER_THREAD} more may wait; others are answered 503",
    )
    pool_size: int = Field(8, ge=1, le=100, description="database connections of each worker")
    database_seconds: float = Field(
        10.0, gt=0, description="longest wait for the database, including the queue before it"
    )

    @field_validator("body_budget_bytes")
    @classmethod
    def _hold_one_body(cls, budget: int, known: ValidationInfo) -> int:
        """Refuse a budget in which the largest body could never find room."""
        most = known.data.get("max_body_bytes", 0)
        if budget < most:
            raise ValueError(
                f"is {budget}, in which no body of MORROW_MAX_BODY_BYTES={most} has room: set it to {most} or more"
            )
        return budget
