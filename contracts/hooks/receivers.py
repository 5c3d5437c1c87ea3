"""Which receivers hooks may ask: https at addresses of the public internet, and what the settings allow besides.

A name is checked again each time that it is resolved, since its owner may change what it means. So an address counts
here and never a name.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

Network = IPv4Network | IPv6Network
SETTING = "MORROW_HOOKS_ALLOW_PRIVATE"
MAX_URL = 2000

# A gateway of IPv6 hands packets for these to the IPv4 address in their last bits.
_TRANSLATED = IPv6Network("64:ff9b::/96")
# Services of a provider's own machines, and the tunnels of Teredo.
_NEVER_GLOBAL = (IPv4Network("192.88.99.0/24"), IPv4Network("168.63.129.16/32"), IPv6Network("2001::/32"))


def read_receiver(url: str, allowed: Sequence[Network]) -> str:
    """The address of a receiver. Raises ValueError with a sentence if no hook can send there.

    Names are not resolved here. `allowed` are networks beyond the public internet, which plain http may reach too.
    """
    if len(url) > MAX_URL:
        raise ValueError(f"is longer than {MAX_URL} characters")
    if re.search(r"[^\x21-\x7e]", url):
        raise ValueError("holds a blank or a character beyond ASCII: encode it with %, and a name as xn--…")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is no URL ({error}): write https://HOST/PATH") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ValueError("is no address of a receiver: write https://HOST/PATH")
    if parts.scheme == "http" and not allowed:
        raise ValueError(
            f"begins with http://, and events are sent over https: write https://…, or allow the network of the "
            f"receiver, as {SETTING}=10.0.0.0/8"
        )
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or a password: leave it out, since events are signed")
    if parts.fragment:
        raise ValueError("ends with a fragment (#…), which is never sent: leave it out")
    if port == 0:
        raise ValueError("has the port 0: write a number from 1 to 65535")
    literal = _read_address(host)
    if literal is not None:
        require_allowed([literal], allowed)
    return url


def require_allowed(addresses: Sequence[str], allowed: Sequence[Network]) -> None:
    """Raise ValueError unless each of these addresses of a receiver may be asked."""
    for address in addresses:
        kind = _name_kind(address)
        if kind is not None and not _is_within(address, allowed):
            raise ValueError(
                f"leads to {address}, which is {kind}: use a receiver in the public internet, or allow its network, "
                f"as {SETTING}={address}"
            )


def require_plain_allowed(addresses: Sequence[str], allowed: Sequence[Network]) -> None:
    """Raise ValueError unless each of these addresses may be asked without TLS."""
    for address in addresses:
        if not _is_within(address, allowed):
            raise ValueError(
                f"begins with http:// and leads to {address}: use https, or allow its network, as {SETTING}={address}"
            )


def read_networks(text: str) -> tuple[Network, ...]:
    """Networks with commas or blanks between them, such as 10.0.0.0/8. Raises ValueError with a sentence."""
    found: list[Network] = []
    for word in re.split(r"[\s,]+", text.strip()):
        if not word:
            continue
        try:
            found.append(IPv6Network(word, strict=False) if ":" in word else IPv4Network(word, strict=False))
        except ValueError:
            raise ValueError(f"holds {word!r}, which is no network: write such as 10.0.0.0/8,127.0.0.1") from None
    return tuple(found)


def _read_address(host: str) -> str | None:
    try:
        ip_address(host)
    except ValueError:
        return None
    return host


def _name_kind(text: str) -> str | None:
    """What kind of address keeps it out of the public internet; None for an address of that."""
    address = _reached(ip_address(text.partition("%")[0]))
    kinds = (
        (address.is_unspecified, "unspecified"),
        (address.is_loopback, "this machine"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (address.is_private or (isinstance(address, IPv6Address) and address.is_site_local), "private"),
        (address.is_reserved or not address.is_global or _is_in(address, _NEVER_GLOBAL), "not public"),
    )
    return next((kind for is_so, kind in kinds if is_so), None)


def _is_within(text: str, allowed: Sequence[Network]) -> bool:
    address = ip_address(text.partition("%")[0])
    return _is_in(_reached(address), allowed) or _is_in(address, allowed)


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an address of IPv6 stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
