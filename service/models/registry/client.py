"""MLflow's registry and artefact proxy by REST: find the champion, download its files, move the alias for a rollback.

Only proxied artefacts (`mlflow-artifacts:`) can be read this way; any other store would need its own client and keys.
"""

import re
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from contracts.artifact_proxy import proxied_path, proxy_address
from contracts.errors import ArtefactRefused, NotFound, Unavailable
from contracts.manifest import MANIFEST_FILE
from contracts.registry_answers import explain_status
from contracts.runtime.http_clients import mlflow_options
from store.releases import ALIAS
from store.tasks.installation import INSTALLATION_TAG

MAX_MANIFEST_BYTES = 64 * 2**20
MAX_FILE_BYTES = 2 * 2**30
MAX_ANSWER_BYTES = 2**20
MAX_SEARCH_BYTES = 64 * 2**20
ANSWER_SECONDS = 10.0
# The server reads all models of a page before it sends a byte.
SEARCH_SECONDS = 10.0
# The most that the server gives at once.
MODELS_PER_PAGE = 1000

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NO_SUCH = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}
_API = "/api/2.0/mlflow"
_SEARCH_TIMEOUT = httpx.Timeout(2.0, read=SEARCH_SECONDS)
_UNREADABLE = "The registry's answer cannot be read."


@dataclass(frozen=True)
class Champion:
    """The version that the alias names, and when the registry made it (milliseconds since the epoch), if known.

    `installation` is the mark of the one that registered it; None if it has none.

    The number alone does not identify a version: a deleted and recreated model, or a new registry, numbers its versions
    from 1 again.
    """

    version: str
    made_at: int | None
    installation: str | None = None

    def is_of(self, version: str, made_at: int | None) -> bool:
        """Whether this is that version; if either creation time is unknown, the number decides."""
        return self.version == version and (None in (self.made_at, made_at) or self.made_at == made_at)


@dataclass(frozen=True)
class RegisteredModel:
    """What a search says of a model: when it was made, its champion, and when that was made if the answer says so.

    Times are in milliseconds since the epoch. Unless it `is_readable`, nothing is known but that there is a model.
    """

    model_made_at: int | None = None
    champion: str | None = None
    made_at: int | None = None
    is_readable: bool = False
    # The mark of the champion, if the answer says when that was made.
    installation: str | None = None


class _Tag(msgspec.Struct):
    key: str = ""
    value: str = ""


class _Version(msgspec.Struct):
    version: str
    creation_timestamp: int | None = None
    tags: list[_Tag] = []

    @property
    def installation(self) -> str | None:
        return next((tag.value for tag in self.tags if tag.key == INSTALLATION_TAG), None)


class _Alias(msgspec.Struct):
    alias: str
    version: str


class _Model(msgspec.Struct):
    creation_timestamp: int | None = None
    latest_versions: list[_Version] = []
    aliases: list[_Alias] = []


class _ModelName(msgspec.Struct):
    name: str


class _Page(msgspec.Struct):
    registered_models: list[msgspec.Raw] = []
    next_page_token: str = ""


class _Named(msgspec.Struct):
    model_version: _Version


class _Listed(msgspec.Struct):
    checksums: dict[str, str]


def make_client(mlflow_url: str) -> httpx.Client:
    """A client that never waits longer than two seconds for the next bytes.

    Raises InvalidInput if the address needs a proxy or certificates that cannot be used.
    """
    return httpx.Client(timeout=2.0, **mlflow_options(mlflow_url))


def find_champion(client: httpx.Client, task: str) -> Champion | None:
    """The version that the alias names; None if there is no such alias. Raises Unavailable."""
    found = _ask(client, "GET", "registered-models/alias", {"name": task, "alias": ALIAS})
    if found is None:
        return None
    try:
        named = msgspec.convert(found, _Named).model_version
    except msgspec.ValidationError as error:
        raise Unavailable(_UNREADABLE) from error
    if not _VERSION.fullmatch(named.version):
        raise Unavailable("The registry names a version that is not a number.")
    return Champion(named.version, named.creation_timestamp, named.installation)


def search_models(client: httpx.Client, *, page_size: int = MODELS_PER_PAGE) -> dict[str, RegisteredModel]:
    """Every registered model by name. Raises Unavailable."""
    found: dict[str, RegisteredModel] = {}
    token = ""
    while True:
        given = {"max_results": str(page_size)} | ({"page_token": token} if token else {})
        body = _ask_raw(client, "registered-models/search", given)
        try:
            page = msgspec.json.decode(body, type=_Page)
            for entry in page.registered_models:
                found[msgspec.json.decode(entry, type=_ModelName).name] = _read_model(entry)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(_UNREADABLE) from error
        token = page.next_page_token
        if not token:
            return found


def _read_model(entry: msgspec.Raw) -> RegisteredModel:
    """An entry of a search; what is wrong with it harms no other."""
    try:
        model = msgspec.json.decode(entry, type=_Model)
    except msgspec.MsgspecError:
        return RegisteredModel()
    champion = next((one.version for one in model.aliases if one.alias == ALIAS), None)
    listed = next((one for one in model.latest_versions if one.version == champion), None)
    return RegisteredModel(
        model.creation_timestamp,
        champion,
        None if listed is None else listed.creation_timestamp,
        champion is None or _VERSION.fullmatch(champion) is not None,
        None if listed is None else listed.installation,
    )


def find_champion_version(client: httpx.Client, task: str) -> str | None:
    """The number of the version that the alias names. Raises Unavailable."""
    champion = find_champion(client, task)
    return None if champion is None else champion.version


def move_alias(client: httpx.Client, task: str, version: str) -> None:
    """Let the alias name this version. Raises Unavailable, and NotFound if the registry no longer has it."""
    if _ask(client, "POST", "registered-models/alias", {"name": task, "alias": ALIAS, "version": version}) is None:
        raise NotFound(f"Version {version} is gone from the registry.")


def find_holder(client: httpx.Client, name: str) -> str | None:
    """What MLflow has under this name, in words: a model, or an experiment, also a deleted one. Raises Unavailable."""
    if _ask(client, "GET", "registered-models/get", {"name": name}) is not None:
        return "a registered model"
    found = _ask(client, "GET", "experiments/get-by-name", {"experiment_name": name})
    if found is None:
        return None
    is_deleted = dict(found.get("experiment") or {}).get("lifecycle_stage") == "deleted"
    return "a deleted experiment (`mlflow gc` removes it)" if is_deleted else "an experiment"


def download_version(client: httpx.Client, task: str, version: str, folder: Path, *, stopping: threading.Event) -> None:
    """Download the manifest and the files that it lists into `folder`. Raises Unavailable, ArtefactRefused."""
    found = _ask(client, "GET", "model-versions/get-download-uri", {"name": task, "version": version})
    if found is None:
        raise ArtefactRefused(f"Version {version} is gone from the registry.")
    root = proxied_path(str(found.get("artifact_uri")))
    copy = partial(_copy, client, root, folder, stopping=stopping)
    copy(MANIFEST_FILE, MAX_MANIFEST_BYTES)
    try:
        listed = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=_Listed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArtefactRefused(f"The manifest cannot be read: {error}") from error
    for name in listed.checksums:
        if not _FILE_NAME.fullmatch(name):
            raise ArtefactRefused(f"{name!r} is not a plain file name.")
        copy(name, MAX_FILE_BYTES)


def _ask(client: httpx.Client, method: str, path: str, parameters: dict[str, str]) -> dict[str, Any] | None:
    """MLflow's JSON response; None if it says that the object does not exist."""
    given: dict[str, Any] = {"params": parameters} if method == "GET" else {"json": parameters}
    try:
        with client.stream(method, f"{_API}/{path}", **given) as response:
            body = _read_answer(response, MAX_ANSWER_BYTES)
            if response.status_code not in (200, 400, 404):
                raise Unavailable(explain_status(response.status_code, body.decode(errors="replace")))
            found = msgspec.json.decode(body, type=dict[str, Any])
    except httpx.HTTPError as error:
        raise Unavailable("The registry does not answer.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable(_UNREADABLE) from error
    if response.status_code == 200:
        return found
    if found.get("error_code") in _NO_SUCH:
        return None
    raise Unavailable(explain_status(response.status_code, ""))


def _ask_raw(client: httpx.Client, path: str, parameters: dict[str, str]) -> bytes:
    """MLflow's JSON response to a search, not decoded. Raises Unavailable."""
    try:
        with client.stream("GET", f"{_API}/{path}", params=parameters, timeout=_SEARCH_TIMEOUT) as response:
            body = _read_answer(response, MAX_SEARCH_BYTES)
    except httpx.HTTPError as error:
        raise Unavailable("The registry does not answer.") from error
    if response.status_code != 200:
        raise Unavailable(explain_status(response.status_code, body.decode(errors="replace")))
    return body


def _read_answer(response: httpx.Response, most: int) -> bytes:
    """The body of a response, limited in size and time. Raises Unavailable, httpx.HTTPError."""
    body, deadline = bytearray(), time.monotonic() + ANSWER_SECONDS
    for part in response.iter_bytes():
        body += part
        if len(body) > most or time.monotonic() > deadline:
            raise Unavailable(_UNREADABLE)
    return bytes(body)


def _copy(
    client: httpx.Client, root: str, folder: Path, name: str, max_bytes: int, *, stopping: threading.Event
) -> None:
    size = 0
    try:
        with (
            client.stream("GET", proxy_address(f"{root}/{name}")) as response,
            (folder / name).open("wb") as file,
        ):
            if response.status_code == 404:
                raise ArtefactRefused(f"{name} is missing from its artefacts.")
            if response.status_code != 200:
                raise Unavailable(f"The artefact proxy answers with status {response.status_code}.")
            for part in response.iter_bytes():
                if stopping.is_set():
                    raise Unavailable("The service is stopping.")
                size += len(part)
                if size > max_bytes:
                    raise ArtefactRefused(f"{name} is larger than {max_bytes} bytes.")
                file.write(part)
    except httpx.HTTPError as error:
        raise Unavailable("The artefact proxy does not answer.") from error
    except httpx.InvalidURL as error:
        raise ArtefactRefused("Its files are at an address that cannot be asked for.") from error
