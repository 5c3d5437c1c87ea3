"""Addresses of object stores: a folder, S3, Google Cloud Storage or Azure, and how a process logs in to each.

The address says where the store is. The provider's usual variables may only add how to log in, so the environment of a
child holds those of the one provider that its address names.
"""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

Provider = Literal["file", "s3", "gs", "az"]

PROVIDERS: Mapping[str, Provider] = {"file": "file", "s3": "s3", "gs": "gs", "az": "az"}
# `s3://` names no host, so the variables of S3 may name an endpoint as well.
_S3_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_LOGINS: Mapping[Provider, frozenset[str]] = {
    "file": frozenset(),
    "s3": frozenset(
        {
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
            *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE", *_S3_ENDPOINT),
            *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
            *("AWS_EC2_METADATA_DISABLED", "AWS_REQUEST_PAYER", "AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID"),
        }
    ),
    "gs": frozenset(
        {
            *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
            "GOOGLE_SERVICE_ACCOUNT_KEY",
        }
    ),
    "az": frozenset(
        {
            *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
            *("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_TENANT_ID"),
            *("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"),
            *("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "AZURE_OBJECT_ID", "AZURE_MSI_RESOURCE_ID"),
        }
    ),
}
_EXAMPLES = "write file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")
_OPTIONS = ("endpoint", "region")


def read_store_url(text: str) -> str:
    """The address of an object store as it was meant, without a slash at its end. Raises ValueError with a sentence."""
    scheme, separator, rest = text.partition("://")
    provider = PROVIDERS.get(scheme.lower())
    if not separator or provider is None:
        found = f"begins with {scheme}://" if separator else "has no scheme"
        raise ValueError(f"{found}: {_EXAMPLES}")
    place, mark, query = rest.partition("?")
    if provider == "file":
        if mark or not place.startswith("/") or not place.strip("/"):
            raise ValueError("names no folder: write file:///FOLDER with the folder's whole path")
        return f"file://{place.rstrip('/')}"
    bucket, _, prefix = place.partition("/")
    if "@" in bucket:
        raise ValueError(f"holds a login, and an address may be logged: set {_CREDENTIALS[provider]} instead")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"names no bucket: write {provider}://BUCKET/PREFIX, in lower case")
    _check_options(provider, query if mark else "")
    return f"{provider}://{'/'.join(part for part in (bucket, *prefix.split('/')) if part)}{mark}{query}"


def _check_options(provider: Provider, query: str) -> None:
    """Raise ValueError unless the options of an address are `endpoint` and `region` of S3."""
    for name, value in parse_qsl(query, keep_blank_values=True):
        if provider != "s3" or name not in _OPTIONS:
            raise ValueError(f"has the option {name!r}, and only s3:// has options: endpoint and region")
        if name == "endpoint" and not re.match(r"https?://[^/@\s]+$", value):
            raise ValueError(f"has the endpoint {value!r}: write endpoint=https://HOST:PORT")


def provider_of(url: str) -> Provider:
    """Who keeps the objects of this address."""
    return PROVIDERS[urlsplit(url).scheme]


def folder_of(url: str) -> str:
    """The folder of a `file://` address."""
    return unquote(url.removeprefix("file://"))


def options_of(url: str) -> dict[str, str]:
    """The options of an address of S3."""
    return dict(parse_qsl(urlsplit(url).query))


def login_variables(url: str) -> frozenset[str]:
    """The variables by which a process may log in to the store at this address."""
    found = PROVIDERS.get(url.partition("://")[0].lower())
    return frozenset() if found is None else _LOGINS[found]


def http_address(url: str, environment: Mapping[str, str]) -> str | None:
    """The server that is asked for the objects of an address, so that its proxy can be found; None for a folder."""
    match provider_of(url):
        case "s3":
            region = options_of(url).get("region") or environment.get("AWS_REGION") or "us-east-1"
            return find_endpoint(url, environment) or f"https://s3.{region}.amazonaws.com"
        case "gs":
            return "https://storage.googleapis.com"
        case "az":
            return f"https://{environment.get('AZURE_STORAGE_ACCOUNT_NAME', 'account')}.blob.core.windows.net"
        case "file":
            return None


def find_endpoint(url: str, environment: Mapping[str, str]) -> str | None:
    """The server of an address of S3 that is not Amazon's own, if one is named."""
    named = (environment.get(name) for name in _S3_ENDPOINT)
    return options_of(url).get("endpoint") or next((value for value in named if value), None)
