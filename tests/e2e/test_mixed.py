"""Half a minute of the mixed load of `python -m benchmarks mixed`, on the stack of `morrow up`."""

import pytest
from rich.console import Console

from benchmarks.mixed.clients import PREDICT
from benchmarks.mixed.command import measure
from tests.e2e.processes import tell

pytestmark = pytest.mark.story

SECONDS = 25.0


def test_nothing_is_lost_twice_or_wrong_under_mixed_load() -> None:
    outcome = measure(SECONDS, Console(quiet=True))
    for line in (outcome.record.describe(), outcome.acts, outcome.audit, outcome.verdict, outcome.memory):
        tell(str(line))
    assert outcome.audit.is_clean, outcome.audit
    assert outcome.verdict.faults == []
    assert outcome.record.faults == []
    assert outcome.audit.num_events > 1000
    assert outcome.audit.num_corrections > 0
    assert outcome.verdict.num_answers > 100
    assert outcome.verdict.num_refusals > 0
    # Nothing is broken here, so nobody is told to come again.
    assert set(outcome.record.statuses(PREDICT)) == {200, 422}
    assert {status for _, status in outcome.record.counts} == {200, 422}
