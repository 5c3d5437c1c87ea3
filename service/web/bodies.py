"""Request bodies: read within limits of size and time, and decompressed if they are sent with gzip.

No more than its limit is ever held of a body, whatever it decompresses to, and a client that stalls is given up.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.types import Receive

from service.errors import Malformed, TooLarge, TooSlow, UnsupportedContent
from service.settings import ServiceSettings

JSON, NDJSON = "application/json", "application/x-ndjson"
NUM_LINES_PER_CHUNK = 1000
_CHUNK_BYTES = 2**20
_PIECE_BYTES = 2**16
_OVERHEAD_BYTES = 2**20  # what headers and trailers of gzip files may take beyond what the files hold


class RequestBody:
    """The body of one request, as its headers describe it."""

    def __init__(self, request: Request, settings: ServiceSettings) -> None:
        content_type, encoding, length = JSON, "identity", "0"
        for name, value in reversed(request.scope["headers"]):  # the first of a name counts
            if name == b"content-type":
                content_type = value.decode("latin-1")
            elif name == b"content-encoding":
                encoding = value.decode("latin-1")
            elif name == b"content-length":
                length = value.decode("latin-1")
        self.media_type = content_type.partition(";")[0].strip().lower()
        self._encoding = encoding.strip().lower()
        self._length = length
        self._max_bytes = settings.max_body_bytes
        self._seconds = settings.body_seconds
        self._receive = request.receive

    async def read(self) -> bytes:
        """The whole of a JSON body, decompressed.

        Raises TooLarge before the body is read whole, UnsupportedContent for content that is not JSON, TooSlow if the
        body stalls, and Malformed if it is broken or ends too early.
        """
        if self.media_type != JSON:
            raise UnsupportedContent(f"The body must be sent with Content-Type: {JSON}.")
        if not (self._length.isascii() and self._length.isdigit()):
            raise Malformed("Content-Length is not a number.")
        if len(self._length) > 18 or int(self._length) > self._max_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        async for piece in self._pieces():
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large()
            parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_chunks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The lines of an NDJSON body in chunks, each line with its number from 1, without blank lines.

        Raises as `read`; the limit of size is that of one line.
        """
        rest, number, size = b"", 0, 0
        chunk: list[tuple[int, bytes]] = []
        async for piece in self._pieces():
            *lines, rest = (rest + piece).split(b"\n") if b"\n" in piece else [rest + piece]
            for line in lines:
                number += 1
                if line.strip():
                    chunk.append((number, line))
                    size += len(line)
            if max(len(rest), *map(len, lines), 0) > self._max_bytes:
                raise TooLarge(f"Line {number + 1} is longer than {self._max_bytes} bytes.", has_rest=True)
            while len(chunk) >= NUM_LINES_PER_CHUNK or size >= _CHUNK_BYTES:
                yield chunk[:NUM_LINES_PER_CHUNK]
                chunk = chunk[NUM_LINES_PER_CHUNK:]
                size = sum(len(line) for _, line in chunk)
        if rest.strip():
            chunk.append((number + 1, rest))
        if chunk:
            yield chunk

    def _pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body, decompressed."""
        if self._encoding not in ("identity", "gzip"):
            raise UnsupportedContent("The body must be sent plain or with Content-Encoding: gzip.")
        sent = _receive_pieces(self._receive, self._seconds)
        return _decompress(sent) if self._encoding == "gzip" else sent

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._max_bytes} bytes.", has_rest=True)


async def read_body(request: Request, settings: ServiceSettings) -> bytes:
    """The whole body of a JSON request, decompressed. Raises as `RequestBody.read`."""
    return await RequestBody(request, settings).read()


async def _receive_pieces(receive: Receive, seconds: float) -> AsyncIterator[bytes]:
    """The pieces of a body as they are sent."""
    has_rest = True
    while has_rest:
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise TooSlow(f"Nothing more of the body came for {seconds:g} seconds.", has_rest=True) from None
        if message["type"] == "http.disconnect":  # nobody reads the answer, but metrics and log show whose fault it was
            raise Malformed("The body ends before its end.")
        has_rest = message.get("more_body", False)
        if piece := message.get("body", b""):
            yield piece


async def _decompress(sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The content of gzip files in a row. No honest file is much larger than its content."""
    inflater = zlib.decompressobj(wbits=31)
    size_sent = size_inflated = 0
    async for piece in sent:
        size_sent += len(piece)
        rest = piece
        while rest:
            if inflater.eof:
                inflater = zlib.decompressobj(wbits=31)
            try:
                inflated = inflater.decompress(rest, _PIECE_BYTES)
            except zlib.error:
                raise Malformed("The body is not gzip.") from None
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if inflated:
                size_inflated += len(inflated)
                yield inflated
        if size_sent > 2 * size_inflated + _OVERHEAD_BYTES:
            raise Malformed("The body is gzip that holds far less than its size.", has_rest=True)
    if not inflater.eof:
        raise Malformed("The body is not gzip, or ends before its end.")
