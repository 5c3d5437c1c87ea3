"""Raw bytes: what a bare socket sends to a process of the API, and what it answers."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from sqlalchemy import Engine, select

from store.database import events
from tests.integration.api_process import Running

SECONDS = 60
HEAD = b"POST /events?task=flights HTTP/1.1\r\nHost: morrow\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def read_answer(stream: BinaryIO, *, has_body: bool = True) -> int | None:
    """The status of the next answer, which is read to its end; None if the connection ends before it."""
    try:
        first = stream.readline()
        length = 0
        while (line := stream.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
    except ConnectionError:
        return None
    if not first:
        return None
    assert len(stream.read(length if has_body else 0)) == (length if has_body else 0)
    return int(first.split()[1])


def say(api: Running, pieces: Sequence[bytes]) -> tuple[socket.socket, BinaryIO]:
    """A connection on which these bytes were sent, and what comes back on it."""
    connection = socket.create_connection(("127.0.0.1", api.port), timeout=SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(ConnectionError):  # the service has hung up, which the answer tells
        for piece in pieces:
            connection.sendall(piece)
    return connection, connection.makefile("rb")


def stored(engine: Engine) -> list[str]:
    """Ids of the events that are there, in their order."""
    with engine.connect() as connection:
        return list(connection.execute(select(events.c.event_id).order_by(events.c.event_id)).scalars())
