"""Small JSON bodies: every fault is told, and told once."""

import pytest

from contracts.errors import Fault, InvalidInput
from service.web.fields import json_reason, read_fields


@pytest.mark.parametrize("body", [b'{"reason": "one", "reason": "two"}', b'{"reason": 1, "reason": "two"}'])
def test_a_name_given_twice_is_told_once(body: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_fields(body, {"reason": json_reason})
    assert list(refused.value.faults) == [Fault("reason", "is given more than once")]


@pytest.mark.parametrize(("name", "remedy"), [("Reasno", "write reason"), ("zzzz", "it takes reason, actor")])
def test_an_unknown_name_is_told_the_near_one_or_all(name: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_fields(f'{{"{name}": "one"}}'.encode(), {"reason": json_reason, "actor": json_reason})
    assert list(refused.value.faults) == [Fault(name, f"is not a field of this body: {remedy}")]
