"""`FakeMorrow` refuses and answers as the API does."""

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from morrow import (
    Event,
    Label,
    ModelExpired,
    OutsideHorizon,
    PreconditionFailed,
)
from morrow.testing import FakeMorrow

from tests.unit.client.replies import EVENT, NOON


def test_a_refusal_by_the_horizon_has_its_bounds(fake: FakeMorrow) -> None:
    with fake.client() as client, pytest.raises(OutsideHorizon) as refused:
        client.predict("sales", {}, datetime(2026, 3, 1, tzinfo=UTC))
    assert refused.value.side == "beyond"
    assert refused.value.valid_until == datetime(2026, 2, 1, tzinfo=UTC)
    assert refused.value.valid_from == datetime(2026, 1, 1, tzinfo=UTC)


def test_the_fake_refuses_as_the_api_does(fake: FakeMorrow) -> None:
    fake.add_task("past", lambda *_: 1, valid_until=NOON)
    with fake.client() as client:
        with pytest.raises(ModelExpired):
            client.predict("past", {})
        client.upload("sales", [EVENT])
        stored = client.event("sales", "a")
        changed = msgspec.structs.replace(EVENT, label=3.0)
        assert client.correct("sales", changed, revision=stored.revision)
        with pytest.raises(PreconditionFailed):
            client.correct("sales", EVENT, revision=stored.revision)
        assert client.event("sales", "a").revision == 2
        number = client.predict("sales", {"x": 1}, NOON, coverage=0.9, rate=True)
        assert (number.coverage, number.interval, number.rate) == (0.9, (1, 1), {"mean": 0, "scale": 0})
        fake.add_task("classes", lambda *_: {"a": np.float64(0.2), "b": 0.8})
        one = client.predict("classes", {}, NOON, coverage=0.9)
        assert (one.prediction, one.prediction_set, one.probabilities) == ("b", ["b"], {"a": 0.2, "b": 0.8})


def test_labels_join_their_events_or_the_answers_of_the_fake_and_others_wait(fake: FakeMorrow) -> None:
    unlabelled = [Event(event_id=event_id, at=NOON, features={"price": 1}) for event_id in ("a", "later")]
    with fake.client() as client:
        client.upload("sales", unlabelled[:1])
        answer = client.predict("sales", {"price": 2}, NOON)
        labels = [
            Label(event_id="a", label=2.0),
            Label(prediction_id=answer.id, label=3.0),
            Label(event_id="later", label=4.0),
        ]
        first, again = client.labels("sales", labels), client.labels("sales", labels)
        assert (first.joined, first.waiting, again.duplicates) == (2, 1, 3)
        (refused,) = client.labels("sales", [Label(event_id="a", label=9.0)]).refused
        assert (refused.event_id, refused.status) == ("a", "conflict")
        assert client.upload("sales", unlabelled[1:]).created == 1
    stored = fake.tasks["sales"].events
    assert {name: one["label"] for name, one in stored.items()} == {"a": 2.0, answer.id: 3.0, "later": 4.0}
    assert stored[answer.id]["features"] == {"price": 2}
