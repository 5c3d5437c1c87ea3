"""A registry behind TLS is believed where its certificate is; a client of a plain one reads no authorities."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from contracts.errors import Unavailable
from service.models.registry.client import find_champion_version, make_client
from tests.integration.tls import write_certificate

HOST = "127.0.0.1"
TRUSTED = "SSL_CERT_FILE"


class _Registry(BaseHTTPRequestHandler):
    """Says that version 3 is champion, whatever it is asked."""

    def do_GET(self) -> None:
        body = b'{"model_version": {"version": "3"}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_given: object) -> None:
        """Nothing: a test prints only what fails."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("tls") / "registry.pem", HOST)


@pytest.fixture(scope="module")
def registry_url(certificate: Path) -> Iterator[str]:
    """Address of a registry behind TLS."""
    server = HTTPServer((HOST, 0), _Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://{HOST}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_whose_certificate_is_trusted_is_read(
    registry_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, str(certificate))
    with make_client(registry_url) as client:
        assert find_champion_version(client, "flights") == "3"


def test_a_registry_whose_certificate_is_not_trusted_counts_as_away(
    registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUSTED, raising=False)
    with make_client(registry_url) as client, pytest.raises(Unavailable):
        find_champion_version(client, "flights")


def test_a_client_of_a_plain_registry_trusts_no_certificate_at_all(
    registry_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, str(certificate))
    with make_client(f"http://{HOST}:9") as client, pytest.raises(httpx.ConnectError, match="certificate"):
        client.get(registry_url)
