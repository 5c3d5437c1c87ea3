"""Searches of MLflow's client, which answers them a page at a time."""

from collections.abc import Callable, Iterator
from typing import Any

from trainer.tracking.translation import translated_errors

# Results of one page.
MAX_FOUND = 1000


def list_pages(search: Callable[..., Any]) -> Iterator[Any]:
    """Everything that a search of MLflow's client finds, page by page; mlflow's lists have no types."""
    token: str | None = None
    while True:
        with translated_errors():
            page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return
