"""What is derived from mappings that are replaced as a whole."""

from collections.abc import Mapping

from service.models.replaced_mappings import Derived


def test_a_value_is_made_again_only_after_a_mapping_was_replaced() -> None:
    made = []

    def make(versions: Mapping[str, str], states: Mapping[str, str]) -> list[tuple[str, str | None]]:
        made.append(1)
        return [(task, states.get(task)) for task in versions]

    derived = Derived(make)
    versions, states = {"a": "1"}, {"a": "ok"}
    assert derived.of(versions, states) is derived.of(versions, states)
    assert len(made) == 1
    assert derived.of(versions, {"a": "degraded"}) == [("a", "degraded")]
    assert derived.of({**versions, "b": "2"}, states) == [("a", "ok"), ("b", None)]
    assert len(made) == 3
