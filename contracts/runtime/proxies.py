"""Which HTTP proxy stands between us and an address, if any.

The environment names proxies for the whole machine. Our own parts are asked directly: addresses of this machine, names
without a dot (a service of Compose or of a cluster), private addresses, and what NO_PROXY lists. Everything else is
asked through the proxy. Only HTTP proxies can be used; a proxy of another kind matters only if it is needed.
"""

import ipaddress
from collections.abc import Mapping, MutableMapping
from urllib.parse import urlsplit

from contracts.errors import Fault, InvalidInput

PROXY_VARIABLES = frozenset(
    name for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (lower, lower.upper())
)
_DIRECT_SUFFIXES = (".localhost", ".local", ".svc", ".svc.cluster.local", "host.docker.internal")


def find_proxy(address: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for this address, as a URL; None if it is asked directly.

    Raises InvalidInput, with the name of the variable, if the proxy is needed and cannot be used.
    """
    parts = urlsplit(address)
    if parts.hostname is None or is_own(parts.hostname) or _is_exempt(parts.hostname, parts.port, environment):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if value := environment.get(variable, "").strip():
                return _check(variable, value, parts.hostname)
    return None


def name_proxies(environment: Mapping[str, str], *addresses: str) -> dict[str, str]:
    """The variables by which a library finds the proxies for the few addresses that its process asks.

    Raises InvalidInput if a proxy that is needed cannot be used.
    """
    named: dict[str, str] = {}
    direct: list[str] = []
    for address in addresses:
        parts = urlsplit(address)
        if (proxy := find_proxy(address, environment)) is None:
            direct.append(parts.hostname or "*")
        else:
            named[f"{parts.scheme}_proxy"] = proxy
    return named | ({"no_proxy": ",".join(direct)} if direct else {})


def exempt_own(environment: MutableMapping[str, str], address: str) -> None:
    """Add the host to `no_proxy` if it is asked directly, for a library that reads that."""
    host, listed = urlsplit(address).hostname, environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if host and find_proxy(address, environment) is None and host not in listed.split(","):
        environment["no_proxy"] = f"{listed},{host}" if listed else host


def is_own(host: str) -> bool:
    """Whether a host is this machine or one of its near network, which a proxy would not find."""
    try:
        place = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").lower().endswith(_DIRECT_SUFFIXES)
    return place.is_loopback or place.is_private or place.is_link_local


def _is_exempt(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    listed = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return any(_matches(entry, host.lower(), port) for part in listed.split(",") if (entry := part.strip().lower()))


def _matches(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY covers the host: `*`, a domain, an address, or a network such as 10.0.0.0/8."""
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    name, _, wanted = entry.rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry, "", "")
    if wanted and int(wanted) != port:
        return False
    domain = name.removeprefix("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")


def _check(variable: str, value: str, host: str) -> str:
    """The proxy as a URL. Raises InvalidInput if we cannot use it; the value may hold a password and is not shown."""
    url = value if "://" in value else f"http://{value}"
    remedy = f"name an HTTP proxy there, or add {host} to NO_PROXY"
    try:
        parts = urlsplit(url)
        is_usable, _ = parts.hostname is not None, parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidInput([Fault(variable, f"holds no address of a proxy, and {host} is asked through it: {remedy}")])
    if parts.scheme not in ("http", "https"):
        reason = (
            f"names a {parts.scheme} proxy, {host} is asked through it, and only HTTP proxies can be used: {remedy}"
        )
        raise InvalidInput([Fault(variable, reason)])
    return url
