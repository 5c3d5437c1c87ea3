"""Bodies of requests: read within limits of size and of patience, inflated where they are sent with gzip.

Nothing larger than its limit is ever held, whatever a body inflates to; a client that stalls does not hold a place.
"""

import zlib
from collections.abc import AsyncIterator

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from service.settings import ServiceSettings

JSON, NDJSON = "application/json", "application/x-ndjson"
NUM_LINES_PER_CHUNK = 1000
_CHUNK_BYTES = 2**20
_PIECE_BYTES = 2**16
_OVERHEAD_BYTES = 2**20  # what heads and ends of compressed files may take beyond what they hold


def content_type(request: Request) -> str:
    """The media type without parameters; JSON where none is given."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


async def read_body(request: Request, settings: ServiceSettings) -> bytes:
    """The whole body of a JSON request, inflated.

    Raises HTTPException: 413 before it is read whole, 415 for other content, 408 where it stalls, 400 where it is
    broken or breaks off.
    """
    if content_type(request) != JSON:
        raise HTTPException(415, f"The body must be sent with Content-Type: {JSON}.")
    most = settings.max_body_bytes
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HTTPException(400, "Content-Length is not a number.")
    if len(length) > 18 or int(length) > most:
        raise _too_large(f"The body is larger than {most} bytes.")
    parts: list[bytes] = []
    size = 0
    async for piece in _pieces(request, settings):
        size += len(piece)
        if size > most:
            raise _too_large(f"The body is larger than {most} bytes.")
        parts.append(piece)
    return b"".join(parts)


async def read_chunks(request: Request, settings: ServiceSettings) -> AsyncIterator[list[tuple[int, bytes]]]:
    """The lines of an NDJSON body, some at a time, each with its number from 1; blank lines are left out.

    Raises HTTPException as `read_body`; the limit of size is that of one line.
    """
    rest, number, size = b"", 0, 0
    chunk: list[tuple[int, bytes]] = []
    async for piece in _pieces(request, settings):
        *lines, rest = (rest + piece).split(b"\n") if b"\n" in piece else [rest + piece]
        for line in lines:
            number += 1
            if line.strip():
                chunk.append((number, line))
                size += len(line)
        if max(len(rest), *map(len, lines), 0) > settings.max_body_bytes:
            raise _too_large(f"Line {number + 1} is longer than {settings.max_body_bytes} bytes.")
        while len(chunk) >= NUM_LINES_PER_CHUNK or size >= _CHUNK_BYTES:
            yield chunk[:NUM_LINES_PER_CHUNK]
            chunk = chunk[NUM_LINES_PER_CHUNK:]
            size = sum(len(line) for _, line in chunk)
    if rest.strip():
        chunk.append((number + 1, rest))
    if chunk:
        yield chunk


def _pieces(request: Request, settings: ServiceSettings) -> AsyncIterator[bytes]:
    """The body piece by piece, as it was before it was compressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise HTTPException(415, "The body must be sent plain or with Content-Encoding: gzip.")
    sent = _sent_pieces(request, settings.body_seconds)
    return _inflate(sent) if encoding == "gzip" else sent


async def _sent_pieces(request: Request, seconds: float) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            with anyio.fail_after(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            reason = f"Nothing more of the body came for {seconds:g} seconds."
            raise HTTPException(408, reason, {"Connection": "close"}) from None
        except ClientDisconnect:  # it reads no answer, but metrics and log tell whose fault it was
            raise HTTPException(400, "The body ends before its end.") from None
        if piece is None:
            return
        yield piece


async def _inflate(sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What gzip files that may follow each other hold. No honest one is much larger than that."""
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
                raise HTTPException(400, "The body is not gzip.") from None
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if inflated:
                size_inflated += len(inflated)
                yield inflated
        if size_sent > 2 * size_inflated + _OVERHEAD_BYTES:
            raise HTTPException(400, "The body is gzip that holds far less than its size.", {"Connection": "close"})
    if not inflater.eof:
        raise HTTPException(400, "The body is not gzip, or ends before its end.")


def _too_large(detail: str) -> HTTPException:
    return HTTPException(413, detail, {"Connection": "close"})
