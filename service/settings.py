"""What can be set for the service, by environment variables with the prefix MORROW_."""

from typing import Literal

from pydantic import Field

from contracts.settings import SharedSettings


class ServiceSettings(SharedSettings):
    """Settings of one API process."""

    host: str = Field(
        "127.0.0.1", description="address to listen on; beyond the loopback nobody is answered until there is a key"
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on")
    poll_seconds: float = Field(2.0, gt=0, le=3600, description="pause between two looks at registry and releases")
    allow_anonymous: bool = Field(
        False, description="answer anyone while there is no key, on any address: something in front knows who asks"
    )
    public: tuple[Literal["docs", "metrics"], ...] = Field(
        (), description="what needs no key: docs, metrics (JSON list)"
    )
    max_body_bytes: int = Field(16 * 2**20, ge=1024, description="largest request body; a larger one is answered 413")
    body_seconds: float = Field(30.0, gt=0, description="longest pause between two pieces of a body; then 408")
    queue_size: int = Field(
        1000,
        ge=1,
        description="events, and requests for the database, that may wait; more are answered 503",
    )
    max_rows: int = Field(10_000, ge=1, description="most rows in one request, of events or questions")
    model_threads: int = Field(1, ge=1, le=64, description="threads that one run of a graph may use")
    batch_threads: int = Field(2, ge=1, le=64, description="batches of POST /predict that are answered side by side")
    pool_size: int = Field(8, ge=1, le=100, description="database connections of this process")
    database_seconds: float = Field(
        10.0, gt=0, description="longest wait for the database, the queue before it included"
    )
