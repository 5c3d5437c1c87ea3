"""A graph that the service cannot open is refused in words for its readers, who need not know where the file lies."""

from pathlib import Path

import pytest

from contracts.errors import ArtefactRefused
from service.models.graph_sessions import open_session


@pytest.mark.parametrize("content", [b"", b"no graph", None])
def test_a_graph_that_cannot_be_loaded_is_refused_without_a_word_on_where_it_lies(
    tmp_path: Path, content: bytes | None
) -> None:
    graph = tmp_path / "model.onnx"
    if content is not None:
        graph.write_bytes(content)
    with pytest.raises(ArtefactRefused, match=r"model\.onnx") as refused:
        open_session(graph, 1)
    assert str(tmp_path) not in str(refused.value)


def test_a_graph_in_memory_that_cannot_be_loaded_is_refused_too() -> None:
    with pytest.raises(ArtefactRefused, match=r"The graph cannot be loaded"):
        open_session(b"no graph", 1)
