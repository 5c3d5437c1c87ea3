"""The addresses of MLflow's artefact proxy (`--serve-artifacts`), by which the trainer and services read a version.

Only names and paths are shared. The trainer writes through MLflow's own client and verifies what it wrote. A service
has no MLflow, and reads bounded answers that a broken registry may garble.
"""

from urllib.parse import quote, urlsplit

from contracts.errors import ArtefactRefused


def proxied_path(uri: str) -> str:
    """The path of a file or folder behind the proxy, quoted. Raises ArtefactRefused if it cannot be read there."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ArtefactRefused("Its files are at an address that cannot be read.") from error
    if parts.scheme != "mlflow-artifacts":
        raise ArtefactRefused(
            f"Its files are at a {parts.scheme or 'local'!r} address; only the artefact proxy can be read: "
            "start the MLflow server with --serve-artifacts."
        )
    path = parts.path.strip("/")
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ArtefactRefused("Its files are not at a plain path.")
    return quote(path)


def proxy_address(path: str) -> str:
    """Where the proxy answers for such a path, relative to MLflow's address."""
    return f"/api/2.0/mlflow-artifacts/artifacts/{path}"
