"""What tests of the client share."""

from datetime import UTC, datetime

import pytest
from morrow.testing import FakeMorrow


@pytest.fixture
def fake() -> FakeMorrow:
    """A task whose prediction is the number of features that came, within January 2026."""
    fake = FakeMorrow()
    end = datetime(2026, 2, 1, tzinfo=UTC)
    fake.add_task(
        "sales", lambda features, _: len(features), valid_from=datetime(2026, 1, 1, tzinfo=UTC), valid_until=end
    )
    return fake


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a client waits, which pass at once."""
    found: list[float] = []
    monkeypatch.setattr("morrow.client.time.sleep", found.append)
    return found
