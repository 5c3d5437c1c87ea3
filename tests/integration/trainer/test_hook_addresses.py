"""No request of a hook reaches an address that is not public, by whatever name, form or detour."""

import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from contracts.hooks.receivers import read_networks
from tests.integration.hook_receiver import LOOPBACK, be_patient, deliveries, events_of, make_hook, receiving
from tests.integration.published_versions import NOW, define, note
from tests.integration.tls import write_certificate

LookUp = Callable[..., list[Any]]
# A public address where nobody answers the test: connecting to it would be an error of its own.
PUBLIC = "192.0.2.1"
LATER = NOW + timedelta(seconds=1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may take long for a request."""
    be_patient(monkeypatch)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("tls") / "receiver.pem")


def names(*addresses: str) -> LookUp:
    """What stands for the server of names: each lookup of a name gives the next one of these, the last for ever."""
    left = list(addresses)

    def look_up(_host: str, port: int, *_more: Any, **_options: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found.split()]

    return look_up


def send(engine: Engine, url: str, **changes: Any) -> tuple[str, str]:
    """Send an event to this address; returns its state, and the answer."""
    make_hook(engine, url)
    note(engine, define(engine), "1", "release")
    deliveries(engine, **changes).tick(LATER)
    (event,) = events_of(engine)
    return event.state, str(event.answer)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_not_asked_unless_allowed(engine: Engine, scheme: str, host: str) -> None:
    with receiving() as receiver:
        url = f"{scheme}://{host}:{receiver.server_port}/hook"
        state, said = send(engine, url, hooks_allow_private=())
    assert (state, receiver.got) == ("waiting", [])
    assert "MORROW_HOOKS_ALLOW_PRIVATE=" in said


def test_an_allowed_network_allows_no_other(engine: Engine) -> None:
    with receiving() as receiver:
        state, said = send(engine, receiver.url, hooks_allow_private=read_networks("10.0.0.0/8"))
    assert (state, receiver.got) == ("waiting", [])
    assert "leads to 127.0.0.1, which is this machine" in said


def test_a_name_with_a_public_address_and_a_private_one_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setattr("socket.getaddrinfo", names("8.8.8.8 127.0.0.1"))
        state, said = send(engine, f"https://example.com:{receiver.server_port}/", hooks_allow_private=())
    assert (state, receiver.got) == ("waiting", [])
    assert said == (
        "example.com leads to 127.0.0.1, which is this machine: use a receiver in the public internet, or allow its "
        "network, as MORROW_HOOKS_ALLOW_PRIVATE=127.0.0.1"
    )


def test_a_name_that_changes_its_meaning_is_connected_to_as_it_was_checked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second lookup would lead to the receiver, which is not allowed."""
    with receiving() as inside, receiving() as allowed:
        assert inside.server_port != allowed.server_port
        monkeypatch.setattr("socket.getaddrinfo", names("127.0.0.1", "127.0.0.2"))
        network = read_networks("127.0.0.1")
        state, said = send(engine, f"http://example.com:{allowed.server_port}/", hooks_allow_private=network)
    assert (state, said) == ("delivered", "204 No Content")
    assert allowed.got[0].headers["host"] == f"example.com:{allowed.server_port}"


def test_a_public_address_is_not_asked_over_plain_http(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", names("8.8.8.8"))
    state, said = send(engine, "http://example.com/")
    assert state == "waiting"
    assert "use https" in said


def test_a_name_without_an_address_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: Any, **_options: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    state, said = send(engine, "https://no-such-host.example/")
    assert state == "waiting"
    assert "no-such-host.example has no address" in said


def test_proxies_of_the_surroundings_are_not_used(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        state, _ = send(engine, receiver.url)
    assert (state, len(receiver.got), proxy.got) == ("delivered", 1, [])


def test_a_receiver_whose_certificate_is_trusted_is_asked_over_tls(
    engine: Engine, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving(certificate=certificate) as receiver:
        state, said = send(engine, f"https://127.0.0.1:{receiver.server_port}/")
    assert (state, said) == ("delivered", "204 No Content")
    assert len(receiver.got) == 1


def test_a_receiver_whose_certificate_is_not_trusted_gets_nothing(
    engine: Engine, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with receiving(certificate=certificate) as receiver:
        state, said = send(engine, f"https://127.0.0.1:{receiver.server_port}/")
    assert (state, receiver.got) == ("waiting", [])
    assert "certificate" in said.lower()


def test_a_certificate_of_another_host_is_not_believed(
    engine: Engine, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is checked and connected to, and the certificate must be that of the name."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr("socket.getaddrinfo", names("127.0.0.1"))
    with receiving(certificate=certificate) as receiver:
        state, said = send(engine, f"https://example.com:{receiver.server_port}/", hooks_allow_private=LOOPBACK)
    assert (state, receiver.got) == ("waiting", [])
    assert "example.com" in said


def test_a_file_of_certificates_that_cannot_be_read_is_a_failure_with_its_reason(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    state, said = send(engine, "https://127.0.0.1:9/")
    assert state == "waiting"
    assert "No such file" in said
