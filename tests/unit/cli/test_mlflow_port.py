"""The port at which `morrow up` runs MLflow: the same from start to start, while nobody else listens on it."""

import socket
from pathlib import Path

import pytest

from cli.local.stack import HOST, kept_port

API_PORT = 8000


def test_a_port_is_kept_until_somebody_else_has_it(tmp_path: Path) -> None:
    file = tmp_path / "port"
    port = kept_port(file, API_PORT)
    assert kept_port(file, API_PORT) == port
    with socket.socket() as other:
        other.bind((HOST, port))
        other.listen()
        assert kept_port(file, API_PORT) != port


@pytest.mark.parametrize("words", [b"", b"0", b"99999", b"\xff", b"8" * 5000])
def test_a_file_that_tells_of_no_port_is_written_anew(tmp_path: Path, words: bytes) -> None:
    file = tmp_path / "port"
    file.write_bytes(words)
    port = kept_port(file, API_PORT)
    assert 0 < port < 2**16
    assert file.read_text("ascii") == f"{port}\n"


def test_a_port_that_the_api_is_to_have_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "port"
    former = kept_port(file, API_PORT)
    assert kept_port(file, former) != former
    assert file.read_text("ascii") != f"{former}\n"


def test_a_file_that_cannot_be_read_or_written_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "port"
    folder.mkdir()
    for file in (folder, tmp_path / "nowhere" / "port"):
        assert 0 < kept_port(file, API_PORT) < 2**16
