"""What the three entrances make of a row: GET /predict, POST /predict and POST /events, on one small task."""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import settings
from hypothesis import strategies as st

from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from service.predict.endpoint import parse_query
from service.validation.question_decoder import Questions, Row
from service.validation.rules import Refusal, RowRules, compile_rules
from store.events.batches import Event, EventBatch

unhurried = settings(deadline=None)
AT = "2026-01-31T12:00:00Z"


def a_task(target: dict[str, Any] | None = None) -> Task:
    return Task.model_validate(
        {
            "name": "flights",
            "features": [
                {"name": "carrier", "kind": "category"},
                {"name": "distance", "kind": "number"},
                {"name": "class", "kind": "category", "optional": True},
                {"name": "wind", "kind": "number", "optional": True},
            ],
            "target": target or {"name": "outcome", "kind": "classification"},
            "window": "P7D",
        }
    )


RULES = compile_rules(a_task())
VALUES = {"at": f'"{AT}"', "carrier": '"UA"', "distance": "1400"}


def get_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What GET /predict makes of these JSON literals, strings without their quotation marks."""
    plain = {name: json.loads(text) if text.startswith('"') else text for name, text in (VALUES | literals).items()}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in plain.items())
    try:
        return RULES.read_query(parse_query(query.encode()))
    except InvalidInput as error:
        return error.faults


def rows_of(questions: Questions) -> list[Row]:
    """The rows of columns, one by one."""
    moments = [
        at if has_at else None for at, has_at in zip(questions.at.tolist(), questions.has_at.tolist(), strict=True)
    ]
    numbers, categories = map(tuple, questions.numbers.tolist()), map(tuple, questions.categories.tolist())
    return [Row(*values) for values in zip(moments, numbers, categories, strict=True)]


def post_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What POST /predict makes of the same literals in the one row of a body."""
    given = VALUES | literals
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    body = f'{{"rows": [{{"at": {given["at"]}, "features": {{{features}}}}}]}}'
    try:
        return rows_of(RULES.read_questions(body.encode("utf-8", "surrogatepass"), 10))[0]
    except InvalidInput as error:
        return tuple(Fault(fault.field.removeprefix("rows[0]."), fault.reason) for fault in error.faults)


def event_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What POST /events makes of the same literals in an event that has nothing else wrong."""
    given = VALUES | literals
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    body = f'{{"event_id": "e", "at": {given["at"]}, "label": "late", "features": {{{features}}}}}'
    row = read_one(RULES, body.encode("utf-8", "surrogatepass"))
    return row.faults if isinstance(row, Refusal) else Row(row.at, row.numbers, row.categories)


def verdicts(**literals: str) -> list[Any]:
    """The three verdicts, rows by their repr, so that NaN equals NaN; refusals by field and reason."""
    return [
        repr(verdict) if isinstance(verdict, Row) else verdict
        for verdict in (get_verdict(**literals), post_verdict(**literals), event_verdict(**literals))
    ]


def only_verdict(**literals: str) -> Any:
    """The one verdict of all three entrances."""
    found = verdicts(**literals)
    assert found[0] == found[1] == found[2]
    return found[0]


def an_event(**changes: Any) -> dict[str, Any]:
    features = {"carrier": "UA", "distance": 1400}
    return {"event_id": "e", "at": AT, "features": features, "label": "late"} | changes


def read_one(rules: RowRules, body: bytes) -> Event | Refusal:
    """What becomes of the first row of a body, or the only one."""
    rows = rules.read_events(body, 10)
    return rows.row(0) if isinstance(rows, EventBatch) else rows[0]


# Values of an event, most of them wrong in some draws and none in others.
event_values = st.fixed_dictionaries(
    {
        "event_id": st.text(min_size=0, max_size=5),
        "at": st.sampled_from([AT, "2026-01-31T12:00:00", 5, "9999-12-31T23:59:59Z"]),
        "features": st.fixed_dictionaries(
            {},
            optional={
                "carrier": st.text(max_size=4) | st.none(),
                "distance": st.floats() | st.integers() | st.booleans(),
                "class": st.text(max_size=4) | st.none(),
                "wind": st.floats() | st.none(),
                "odd": st.none(),
            },
        ),
        "label": st.text(max_size=3) | st.floats(),
    },
    optional={"known_at": st.sampled_from([AT, None, "2020-01-01T00:00:00Z", ""])},
)
