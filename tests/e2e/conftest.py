"""What the tests of commands and pages share: an API to talk to, and a browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from cli.local.processes import start_child
from cli.local.stack import HOST, free_port
from tests.e2e.browser import open_browser
from tests.e2e.morrow_command import MORROW


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    environment = os.environ | {
        "MORROW_DATABASE_URL": database_url,
        "MORROW_HOME": str(tmp_path / "home"),
        "MORROW_HOST": HOST,
        "MORROW_PORT": str(port),
    }
    child = start_child("API", [*MORROW, "serve"], environment, tmp_path / "api.log")
    url = f"http://{HOST}:{port}"
    try:
        transport = httpx.HTTPTransport(retries=8)
        with httpx.Client(transport=transport, timeout=30) as client:
            assert client.get(f"{url}/livez").status_code == 200
        yield url
    finally:
        child.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser
