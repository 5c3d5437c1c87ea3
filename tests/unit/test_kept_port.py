"""The port at which `morrow up` runs MLflow: the same from start to start, while nobody else listens on it."""

import socket
from pathlib import Path

import pytest

from cli.stack import HOST, kept_port


def test_a_port_is_kept_until_somebody_else_has_it(tmp_path: Path) -> None:
    file = tmp_path / "port"
    port = kept_port(file)
    assert kept_port(file) == port
    with socket.socket() as other:
        other.bind((HOST, port))
        other.listen()
        assert kept_port(file) != port


@pytest.mark.parametrize("words", [b"", b"0", b"99999", b"\xff", b"8" * 5000])
def test_a_file_that_tells_of_no_port_is_written_anew(tmp_path: Path, words: bytes) -> None:
    file = tmp_path / "port"
    file.write_bytes(words)
    port = kept_port(file)
    assert 0 < port < 2**16
    assert file.read_text("ascii") == f"{port}\n"
