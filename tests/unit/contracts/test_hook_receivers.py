"""Hooks ask addresses of the public internet over https, and others only where the settings allow it."""

import pytest

from contracts.hooks.receivers import MAX_URL, read_networks, read_receiver, require_allowed, require_plain_allowed

PUBLIC = ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
# What versions of Python count differently.
EITHER = "(private|not public)"
NOT_PUBLIC = [
    ("127.0.0.1", "this machine"),
    ("127.8.9.10", "this machine"),
    ("::1", "this machine"),
    ("::ffff:127.0.0.1", "this machine"),
    ("64:ff9b::7f00:1", "this machine"),
    ("2002:7f00:1::", "this machine"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("::ffff:0.0.0.0", "unspecified"),
    ("10.1.2.3", "private"),
    ("172.16.0.1", "private"),
    ("192.168.1.1", "private"),
    ("::ffff:192.168.1.1", "private"),
    ("64:ff9b::a01:203", "private"),
    ("fd00:ec2::254", "private"),
    ("fec0::1", "private"),
    ("169.254.169.254", "link-local"),
    ("::ffff:169.254.169.254", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("100.100.100.200", "not public"),
    ("168.63.129.16", "not public"),
    ("255.255.255.255", EITHER),
    ("240.0.0.1", EITHER),
    ("192.0.2.1", EITHER),
    ("::7f00:1", EITHER),
    ("2001::1", EITHER),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_asked(address: str) -> None:
    require_allowed([address], ())


@pytest.mark.parametrize(("address", "kind"), NOT_PUBLIC)
def test_any_other_address_is_refused_by_its_kind_with_the_setting_that_allows_it(address: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind}: .*MORROW_HOOKS_ALLOW_PRIVATE="):
        require_allowed([address], ())


def test_one_such_address_among_public_ones_is_enough_to_refuse_all() -> None:
    with pytest.raises(ValueError, match=r"leads to 10\.0\.0\.7"):
        require_allowed(["8.8.8.8", "10.0.0.7"], ())


def test_an_allowed_network_may_be_asked_in_every_form_of_its_addresses_and_no_other_may() -> None:
    allowed = read_networks("10.0.0.0/8, ::1")
    require_allowed(["10.1.2.3", "::ffff:10.1.2.3", "::1"], allowed)
    with pytest.raises(ValueError, match="this machine"):
        require_allowed(["127.0.0.1"], allowed)


def test_only_allowed_networks_are_asked_without_tls() -> None:
    allowed = read_networks("10.0.0.0/8")
    require_plain_allowed(["10.1.2.3"], allowed)
    with pytest.raises(ValueError, match="use https"):
        require_plain_allowed(["8.8.8.8"], allowed)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/hook?token=a%20b",
        "https://[2606:4700:4700::1111]/hook",
        "https://internal/hook",
        "HTTPS://EXAMPLE.COM/",
    ],
)
def test_an_address_of_a_receiver_is_taken_as_it_is(url: str) -> None:
    assert read_receiver(url, ()) == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", "sent over https"),
        ("ftp://example.com/", "no address of a receiver"),
        ("example.com/hook", "no address of a receiver"),
        ("https:///hook", "no address of a receiver"),
        ("https://user:password@example.com/", "user or a password"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "no URL"),
        ("https://exa mple.com/", "blank"),
        ("https://bücher.example/", "beyond ASCII"),
        ("https://example.com/\r\nX: y", "blank"),
        ("https://127.0.0.1/", "this machine"),
        ("https://[::ffff:10.0.0.1]/", "private"),
        ("https://[fe80::1]/", "link-local"),
        (f"https://example.com/{'a' * MAX_URL}", "longer than"),
    ],
)
def test_an_address_that_no_hook_can_use_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_receiver(url, ())


def test_plain_http_is_taken_if_some_network_is_allowed() -> None:
    assert read_receiver("http://10.0.0.1/", read_networks("10.0.0.0/8")) == "http://10.0.0.1/"


@pytest.mark.parametrize("text", ["true", "10.0.0.0/33", "localhost", "10.0.0.0/8;::1"])
def test_what_is_no_network_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        read_networks(text)


def test_networks_may_have_commas_and_blanks_between_them() -> None:
    assert list(map(str, read_networks(" 10.0.0.0/8,127.0.0.1  ::1 "))) == ["10.0.0.0/8", "127.0.0.1/32", "::1/128"]
    assert read_networks("") == ()
