"""A way to the registry that the test can cut: for one process, as a broken network does, or for all."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


class Cut:
    """Forwards connections to another port, but for processes that are cut off: theirs are closed at once.

    The two ports of a connection tell which process asks: only that process holds its end.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self._listener, self._listener_port = listener, int(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._listener_port}"
        self._target = target
        self._pids: set[int] = set()
        self._open: dict[socket.socket, int] = {}

    def off(self, *pids: int) -> None:
        """From now on these processes reach nothing; what they have open is closed."""
        self._pids |= set(pids)
        for connection, pid in list(self._open.items()):
            if pid in self._pids:
                _close(connection)

    def run(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, (_, port) = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        pid = _holder(port, self._listener_port)
        self._open[connection] = pid
        try:
            if pid in {0, *self._pids}:
                return
            with socket.create_connection(self._target) as onward, suppress(OSError):
                back = threading.Thread(target=_pump, args=(onward, connection), daemon=True)
                back.start()
                _pump(connection, onward)
                back.join()
        finally:
            _close(connection)
            del self._open[connection]


@contextmanager
def cuttable(url: str) -> Iterator[Cut]:
    """A way to the server at `url`."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cut = Cut(listener, (host, int(port)))
        thread = threading.Thread(target=cut.run, daemon=True)
        thread.start()
        yield cut
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _holder(port: int, listener_port: int) -> int:
    """The process whose connection goes from one port to the other; 0 where it is gone already.

    A port alone may be that of several connections, to different ports.
    """
    ends = (port, listener_port)
    found = [
        one.pid
        for one in psutil.net_connections("tcp")
        if one.laddr and one.raddr and (one.laddr.port, one.raddr.port) == ends
    ]
    return next((pid for pid in found if pid), 0)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
