"""A 200 with a body that is already JSON: the response of the hot paths."""

from starlette.responses import Response


class EncodedAnswer(Response):
    """A Starlette response that writes its own headers: Starlette's cost more than encoding a small answer."""

    body: bytes

    def __init__(self, body: bytes, *, etag: str | None = None) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if etag is not None:
            self.raw_headers.append((b"etag", etag.encode()))
