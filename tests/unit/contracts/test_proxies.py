"""Which addresses are asked through a proxy: none of our own, and every other as the environment says."""

import pytest

from contracts.errors import InvalidInput
from contracts.runtime.http_clients import client_options, mlflow_options
from contracts.runtime.proxies import exempt_own, find_proxy

PROXIES = {"HTTP_PROXY": "http://proxy:3128", "HTTPS_PROXY": "proxy:3129", "ALL_PROXY": "socks5://proxy:1080"}
OWN = (
    *("http://127.0.0.1:8000", "http://localhost:5000", "https://[::1]:5000", "http://127.9.9.9", "http://mlflow:5000"),
    *("http://10.1.2.3:5000", "http://192.168.0.9", "http://mlflow.ml.svc.cluster.local", "http://printer.local"),
    *("http://host.docker.internal:5000", "http://api.localhost"),
)


@pytest.mark.parametrize("address", OWN)
def test_own_addresses_are_asked_directly(address: str) -> None:
    assert find_proxy(address, PROXIES) is None


def test_other_addresses_are_asked_through_the_proxy_of_their_scheme() -> None:
    assert find_proxy("http://mlflow.example", PROXIES) == "http://proxy:3128"
    assert find_proxy("https://mlflow.example", PROXIES) == "http://proxy:3129"
    assert find_proxy("http://mlflow.example", {"http_proxy": "http://lower:1"} | PROXIES) == "http://lower:1"
    assert find_proxy("http://mlflow.example", {"all_proxy": "http://all:1"}) == "http://all:1"
    assert find_proxy("http://mlflow.example", {"HTTP_PROXY": " "}) is None


@pytest.mark.parametrize(
    ("listed", "is_direct"),
    [
        ("*", True),
        ("example", True),
        (".example", True),
        ("*.ml.example", True),
        ("other, mlflow.ml.example:5000", True),
        ("MLFLOW.ml.EXAMPLE", True),
        ("mlflow.ml.example:5001", False),
        ("flow.ml.example", False),
        ("10.0.0.0/8", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_addresses_that_no_proxy_lists_are_asked_directly(variable: str, listed: str, is_direct: bool) -> None:
    found = find_proxy("http://mlflow.ml.example:5000", PROXIES | {variable: listed})
    assert (found is None) == is_direct


def test_a_network_may_be_listed() -> None:
    assert find_proxy("http://8.8.8.8", PROXIES | {"NO_PROXY": "8.8.0.0/16"}) is None


@pytest.mark.parametrize("value", ["socks5://proxy:1080", "http://proxy:port", "ftp://proxy", "http://"])
def test_a_proxy_that_is_needed_and_cannot_be_used_is_named_without_its_password(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"ALL_PROXY: .*mlflow\.example.*NO_PROXY"):
        find_proxy("http://mlflow.example", {"ALL_PROXY": value})
    assert find_proxy("http://127.0.0.1", {"ALL_PROXY": value}) is None
    with pytest.raises(InvalidInput) as caught:
        find_proxy("http://mlflow.example", {"ALL_PROXY": "socks5://me:secret@proxy"})
    assert "secret" not in str(caught.value)


def test_a_library_that_reads_no_proxy_learns_of_an_own_address_once() -> None:
    environment = {**PROXIES, "NO_PROXY": "a.example"}
    for _ in range(2):
        exempt_own(environment, "http://mlflow:5000")
        exempt_own(environment, "http://mlflow.example")
    assert environment["no_proxy"] == "a.example,mlflow"


def test_certificates_that_cannot_be_read_matter_to_https_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    assert client_options("http://mlflow:5000")["proxy"] is None
    with pytest.raises(InvalidInput, match=r"SSL_CERT_FILE: /nowhere\.pem cannot be read .* https://mlflow"):
        client_options("https://mlflow")


def test_a_login_of_the_url_comes_before_that_of_the_environment() -> None:
    environment = {"MLFLOW_TRACKING_USERNAME": "you", "MLFLOW_TRACKING_PASSWORD": "theirs"}
    assert mlflow_options("http://me:mine@mlflow/", environment)["auth"] == ("me", "mine")
    assert mlflow_options("http://mlflow", environment)["auth"] == ("you", "theirs")
    options = mlflow_options("http://mlflow", {"MLFLOW_TRACKING_TOKEN": "x"})
    assert (options["auth"], options["headers"]) == (None, {"Authorization": "Bearer x"})
