"""Signatures of events by the scheme of Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""

import base64
import hashlib
import hmac
import secrets

_PREFIX = "whsec_"
_NUM_BYTES = 32


def make_secret() -> bytes:
    """A new secret of a hook."""
    return secrets.token_bytes(_NUM_BYTES)


def show_secret(secret: bytes) -> str:
    """The secret in the form that receivers' libraries take."""
    return _PREFIX + base64.b64encode(secret).decode()


def sign(secret: bytes, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver verifies a body sent at `timestamp` (seconds since the epoch)."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{digest}"}
