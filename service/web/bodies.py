"""Request bodies: read within limits of size and time, and decompressed if they are sent with gzip.

RFC 9110, 8.4: an encoding is a list, `x-gzip` means gzip, and `identity` means nothing.

No more of a body than its limit is ever held, whatever it decompresses to; a stalled client's request is refused. All
bodies together are held within the budget of their process (`service.web.body_budget`).
"""

import asyncio
import codecs
import string
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from starlette.requests import Request
from starlette.types import Receive, Scope

from service.errors import Malformed, TooLarge, TooSlow, UnsupportedContent, UnsupportedEncoding
from service.settings import ServiceSettings
from service.web.body_budget import FREE_BYTES, loan_of

JSON, NDJSON = "application/json", "application/x-ndjson"
NUM_LINES_PER_CHUNK = 1000
# A byte order mark alone is as good as a blank line.
_BLANK = string.whitespace.encode() + codecs.BOM_UTF8
_CHUNK_BYTES = 2**20
_STREAM_BYTES = 2 * _CHUNK_BYTES  # what a stream of lines of usual lengths holds at most: a chunk and the next piece
_PIECE_BYTES = 2**16
_OVERHEAD_BYTES = 2**20  # most bytes of headers and trailers of gzip files, in addition to their content


class RequestBody:
    """The body of one request, as its headers describe it."""

    def __init__(self, scope: Scope, receive: Receive, settings: ServiceSettings) -> None:
        content_type, length = JSON, "0"
        encodings: list[str] = []
        for name, value in reversed(scope["headers"]):  # the first of a name counts
            if name == b"content-type":
                content_type = value.decode("latin-1")
            elif name == b"content-encoding":
                encodings[:0] = value.decode("latin-1").split(",")
            elif name == b"content-length":
                length = value.decode("latin-1")
        self.media_type = content_type.partition(";")[0].strip().lower()
        codings = [coding.strip().lower() for coding in encodings]
        self._codings = [coding for coding in codings if coding not in ("", "identity")]
        self._length = length
        self._max_bytes = settings.max_body_bytes
        self._seconds = settings.body_seconds
        self._receive = receive
        self._loan = loan_of(scope)
        self._has_rest = True
        self._gunzip = _Gunzip() if self._codings in (["gzip"], ["x-gzip"]) else None

    async def read(self, media_types: Sequence[str] = (JSON,)) -> bytes:
        """The whole of a body of one of these types, decompressed.

        Raises TooLarge before the body is read whole, BodiesFull before it is read if its length is given, and else at
        the first piece without room, UnsupportedContent for content of another type, TooSlow if the body stalls, and
        Malformed if it is broken or ends too early.
        """
        if self.media_type not in media_types:
            raise UnsupportedContent(f"The body must be sent with Content-Type: {' or '.join(media_types)}.")
        if not (self._length.isascii() and self._length.isdigit()):
            raise Malformed("Content-Length is not a number.")
        if len(self._length) > 18 or int(self._length) > self._max_bytes:
            raise self._too_large()
        self._hold(int(self._length))
        parts: list[bytes] = []
        size = 0
        while self._has_rest:
            for piece in await self._receive_pieces():
                size += len(piece)
                if size > self._max_bytes:
                    raise self._too_large()
                self._hold(size)
                parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_chunks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The lines of an NDJSON body in chunks, each line with its number from 1, without blank lines.

        Raises as `read`; the limit of size is that of one line. Only a chunk and a line are held, so a stream of any
        length needs that much room.
        """
        lines, room = _Lines(self._max_bytes), self._hold_stream()
        while self._has_rest:
            for piece in await self._receive_pieces():
                lines.add(piece)
                if lines.num_held > FREE_BYTES:
                    self._hold(max(lines.num_held, room))
                while chunk := lines.take_chunk():
                    yield chunk
        if chunk := lines.take_rest():
            yield chunk

    async def _receive_pieces(self) -> Iterable[bytes]:
        """The next part of the body, decompressed into pieces that are not large."""
        if self._codings and self._gunzip is None:
            raise UnsupportedEncoding(self._codings)
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(f"No more of the body arrived for {self._seconds:g} seconds.", has_rest=True) from None
        if message["type"] == "http.disconnect":  # no client reads the answer, but the metrics show whose fault it was
            raise Malformed("The body ends too early.")
        self._has_rest = message.get("more_body", False)
        sent = message.get("body", b"")
        return (sent,) if self._gunzip is None else self._gunzip.feed(sent, is_last=not self._has_rest)

    def _hold_stream(self) -> int:
        """The room for a stream of lines, held from the start if its length is given."""
        is_told = self._length != "0" and self._length.isascii() and self._length.isdigit()
        if not is_told:
            return _STREAM_BYTES
        room = min(int(self._length[:18]), _STREAM_BYTES)
        self._hold(room)
        return room

    def _hold(self, num_bytes: int) -> None:
        if self._loan is not None:
            self._loan.hold(num_bytes)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._max_bytes} bytes.", has_rest=True)


class _Lines:
    """The lines of a body that comes in pieces, each with its number from 1, without blank lines."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunk: list[tuple[int, bytes]] = []
        self._rest = b""
        self._number = self._size = 0

    @property
    def num_held(self) -> int:
        """Bytes of lines that were not taken yet."""
        return self._size + len(self._rest)

    def add(self, piece: bytes) -> None:
        """Split the next piece. Raises TooLarge for a line that is too long."""
        *lines, self._rest = (self._rest + piece).split(b"\n") if b"\n" in piece else [self._rest + piece]
        for line in lines:
            self._number += 1
            if line.strip(_BLANK):
                self._chunk.append((self._number, line))
                self._size += len(line)
        if max(len(self._rest), *map(len, lines), 0) > self._max_bytes:
            raise TooLarge(f"Line {self._number + 1} is longer than {self._max_bytes} bytes.", has_rest=True)

    def take_chunk(self) -> list[tuple[int, bytes]]:
        """The next chunk; empty if there are too few lines for one."""
        if len(self._chunk) < NUM_LINES_PER_CHUNK and self._size < _CHUNK_BYTES:
            return []
        taken, self._chunk = self._chunk[:NUM_LINES_PER_CHUNK], self._chunk[NUM_LINES_PER_CHUNK:]
        self._size = sum(len(line) for _, line in self._chunk)
        return taken

    def take_rest(self) -> list[tuple[int, bytes]]:
        """What is left at the end of the body."""
        if self._rest.strip(_BLANK):
            self._chunk.append((self._number + 1, self._rest))
        return self._chunk


class _Gunzip:
    """Decompress consecutive gzip files. No honest file is much larger than its content."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=31)
        self._num_sent = self._num_inflated = 0

    def feed(self, sent: bytes, *, is_last: bool) -> Iterator[bytes]:
        """The content of the next bytes, piece by piece. Raises Malformed."""
        self._num_sent += len(sent)
        while sent:
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(wbits=31)
            try:
                inflated = self._inflater.decompress(sent, _PIECE_BYTES)
            except zlib.error:
                raise Malformed("The body is not gzip.") from None
            sent = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            if inflated:
                self._num_inflated += len(inflated)
                yield inflated
        if self._num_sent > 2 * self._num_inflated + _OVERHEAD_BYTES:
            raise Malformed("The body is gzip that holds far less than its size.", has_rest=True)
        if is_last and not self._inflater.eof:
            raise Malformed("The body is not gzip, or ends too early.")


async def read_body(request: Request, settings: ServiceSettings) -> bytes:
    """The whole body of a JSON request, decompressed. Raises as `RequestBody.read`."""
    return await RequestBody(request.scope, request.receive, settings).read()
