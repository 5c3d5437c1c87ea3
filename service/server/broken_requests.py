"""What is wrong with bytes that are no request of HTTP/1.1, in a sentence with the remedy."""

import re
from urllib.parse import quote_from_bytes

import httptools

HTTP_2 = b"PRI * HTTP/2.0"
_TLS = b"\x16\x03"
_NOISE = "This is not a request of HTTP/1.1."
_IS_HTTP_2 = (
    "This port speaks HTTP/1.1, and the client began HTTP/2 without asking: let it speak HTTP/1.1 "
    "(curl --http1.1), or put a proxy in front."
)
_IS_TLS = (
    "This port speaks plain HTTP, and the client began TLS: use http://, or put a proxy that terminates TLS in front."
)
# A request line whose target holds something that must be percent-encoded (RFC 9112, 3.2).
_BROKEN_LINE = re.compile(rb"^[A-Z]{3,10} (/[!-~]*[^!-~\r\n][^\r\n]*?) HTTP/1\.[01]\r?$", re.MULTILINE)
_UNENCODED = re.compile(rb"[\x80-\xff]+|[^!-~]")
_LONGEST_SHOWN = 60


def explain_broken_request(opening: bytes, piece: bytes, error: Exception) -> str:
    """The sentence about a piece of bytes that the parser refuses; `opening` are the first bytes of the connection."""
    if opening.startswith(_TLS):
        return _IS_TLS
    if opening.startswith(HTTP_2):
        return _IS_HTTP_2
    if found := _BROKEN_LINE.search(piece):
        return _explain_target(found[1])
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return f"The address of the request holds a character that must be percent-encoded: {_encode('city=Zürich')}."
    return _NOISE


def _explain_target(target: bytes) -> str:
    found = _UNENCODED.search(target)
    assert found is not None
    character = _decode(found[0])[:1]
    shown = "a blank" if character == " " else repr(character)
    code = quote_from_bytes(character.encode() if found[0][0] > 127 else found[0], safe="")
    sentence = f"The address of the request holds {shown}, which must be percent-encoded as {code}"
    start, end = target.rfind(b"&", 0, found.start()) + 1, target.find(b"&", found.start())
    if b"?" not in target[: found.start()]:
        return f"{sentence}."
    parameter = _decode(target[max(start, target.find(b"?") + 1) : None if end < 0 else end])
    if len(parameter) > _LONGEST_SHOWN or not parameter.isprintable() or "'" in parameter:
        parameter = "city=Zürich"
    name, equals, _ = parameter.partition("=")
    if equals and not name.isascii():
        # curl encodes the value alone, and no parameter of ours has such a name.
        return f"{sentence}. No parameter or feature has the name {name!r}, for names are ASCII: {_suggest(name)}"
    return f"{sentence}: {_encode(parameter)}."


def _suggest(name: str) -> str:
    from contracts.spec.spec_values import suggest_name  # loads NumPy, which a supervisor of workers never needs

    return f"is it {suggest_name(name)}? The task's file lists its features (GET /tasks/{{task}})."


def _encode(parameter: str) -> str:
    return f"with curl, use --get --data-urlencode '{parameter}'"


def _decode(part: bytes) -> str:
    """The text of bytes that are UTF-8, or else one byte a character."""
    try:
        return part.decode()
    except UnicodeDecodeError:
        return part.decode("latin-1")
