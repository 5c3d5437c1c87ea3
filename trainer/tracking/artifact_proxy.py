"""Files that MLflow keeps for us behind its own address (`--serve-artifacts`), read and deleted as any client may."""

from pathlib import Path

import httpx

from contracts.errors import ArtefactRefused, CycleError
from contracts.runtime.addresses import Credentials
from trainer.tracking.errors import RegistryUnreachable

_SCHEME = "mlflow-artifacts:"
_SECONDS = 10
_SECONDS_TO_DELETE = 60


def proxied_path(uri: str) -> str:
    """Where behind MLflow's address a file or folder is that it names so. Raises CycleError where it is elsewhere."""
    if not uri.startswith(f"{_SCHEME}/"):
        raise CycleError("MLflow stores artefacts where services cannot read them: start it with --serve-artifacts.")
    return uri.removeprefix(_SCHEME).lstrip("/")


def download(server: str, path: str, target: Path, credentials: Credentials | None = None) -> None:
    """Write a file to `target`. Raises ArtefactRefused if there is none, RegistryUnreachable."""
    try:
        with (
            httpx.stream("GET", _address(server, path), auth=credentials, timeout=_SECONDS) as answer,
            target.open("wb") as file,
        ):
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise ArtefactRefused(f"MLflow has no file {target.name} of this version.")
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
    except httpx.HTTPError as error:
        raise RegistryUnreachable from error


def delete(server: str, path: str, credentials: Credentials | None = None) -> None:
    """Delete a folder that is there. Raises RegistryUnreachable."""
    try:
        answer = httpx.delete(_address(server, path), auth=credentials, timeout=_SECONDS_TO_DELETE)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise RegistryUnreachable from error


def _address(server: str, path: str) -> str:
    return f"{server}/api/2.0/mlflow-artifacts/artifacts/{path}"
