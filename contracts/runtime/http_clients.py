"""How a client of ours reaches an address: through which proxy, and which certificates it trusts.

httpx reads both from the environment when a client is made, for any address, and fails there if one cannot be used.
Here they are chosen for one address, so that a proxy or a file that it does not need changes nothing.
"""

import os
import ssl
from collections.abc import Mapping
from typing import Literal, TypedDict
from urllib.parse import urlsplit

from contracts.errors import Fault, InvalidInput
from contracts.runtime.addresses import Credentials, split_credentials
from contracts.runtime.proxies import find_proxy


class ClientOptions(TypedDict):
    """Arguments of `httpx.Client`, `httpx.AsyncClient` and `httpx.stream`."""

    verify: ssl.SSLContext
    proxy: str | None
    trust_env: Literal[False]


def client_options(address: str, environment: Mapping[str, str] = os.environ) -> ClientOptions:
    """The options for one address.

    The certificates of all authorities take 40 ms and some MiB to read, so they are read for an https address only.
    For http, the client trusts none. Raises InvalidInput if a proxy or a file of certificates is needed and cannot be
    used.
    """
    return {"verify": _trust(address, environment), "proxy": find_proxy(address, environment), "trust_env": False}


class MlflowOptions(ClientOptions):
    """Arguments of a client of MLflow, whose paths then begin at its address."""

    base_url: str
    auth: Credentials | None
    headers: dict[str, str]


def mlflow_options(mlflow_url: str, environment: Mapping[str, str] = os.environ) -> MlflowOptions:
    """The options for an MLflow server: user and password of its URL, else those that MLflow's own client takes.

    Raises InvalidInput as `client_options` does.
    """
    address, credentials = split_credentials(mlflow_url.rstrip("/"))
    user, token = environment.get("MLFLOW_TRACKING_USERNAME"), environment.get("MLFLOW_TRACKING_TOKEN")
    headers: dict[str, str] = {}
    if credentials is None and user:
        credentials = Credentials(user, environment.get("MLFLOW_TRACKING_PASSWORD", ""))
    elif credentials is None and token:
        headers["Authorization"] = f"Bearer {token}"
    return {**client_options(address, environment), "base_url": address, "auth": credentials, "headers": headers}


def _trust(address: str, environment: Mapping[str, str]) -> ssl.SSLContext:
    if urlsplit(address).scheme != "https":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:
        variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environment.get(name)), "SSL_CERT_FILE")
        reason = f"{environment.get(variable)} cannot be read ({error.strerror or error}), and {address} needs it"
        raise InvalidInput([Fault(variable, f"{reason}: correct or unset it")]) from error
