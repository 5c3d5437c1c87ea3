"""Settings that all processes of Morrow share; `service.settings` and `trainer.settings` add their own.

An entry point reads them from the environment once and passes them down.
"""

import os
import pwd
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from contracts.errors import Fault, InvalidInput
from contracts.hooks.receivers import Network, read_networks
from contracts.runtime.addresses import read_database_url, read_http_address, with_password
from contracts.runtime.surroundings import is_service_link, unquote_value


def default_home() -> Path:
    """`.morrow` in the user's home folder. Raises InvalidInput if this user has none."""
    try:
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir) / ".morrow"
    except KeyError:
        reason = "is not set, and this user has no home folder: set it to a folder that can be written to"
        raise InvalidInput([Fault("MORROW_HOME", reason)]) from None


class _PlainEnvironment(EnvSettingsSource):
    """Variables as meant: without quotation marks around them, and without those that Kubernetes writes."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        if isinstance(value, str):
            value = unquote_value(value)
            if not value or is_service_link(value):
                value = None
        return value, key, is_complex


def _read_networks(value: object) -> object:
    return read_networks(value) if isinstance(value, str) else value


class SharedSettings(BaseSettings):
    """Settings of API, trainer and command line. An empty variable counts as unset."""

    model_config = SettingsConfigDict(env_prefix="MORROW_", env_ignore_empty=True, frozen=True, extra="ignore")

    home: Path = Field(
        default_factory=default_home, description="folder for local state: the embedded database, model copies"
    )
    database_password_file: Path | None = Field(
        None, description="file with the password of the database's user, to keep it out of the URL"
    )
    database_url: str | None = Field(
        None, description="URL postgresql://USER@HOST:5432/NAME; if unset, the embedded PostgreSQL is used"
    )
    mlflow_password_file: Path | None = Field(
        None, description="file with the password of MLflow's user, if MLflow asks for one"
    )
    mlflow_url: str | None = Field(
        None,
        description="address of the MLflow server, such as http://mlflow:5000; http://USER@… with a password",
    )
    cycle_limit_seconds: float = Field(3600.0, gt=0, description="time limit of one cycle; a longer one is killed")
    hooks_allow_private: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_read_networks)] = Field(
        (),
        description="networks beyond the public internet that hooks may send to, also over http, with commas: "
        "10.0.0.0/8,127.0.0.1",
    )
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else json")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="lowest level that is logged")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 replaced
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 not read
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 not read
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments first, then the environment, and no file."""
        return init_settings, _PlainEnvironment(settings_cls)

    @field_validator("database_url", "mlflow_url")
    @classmethod
    def _read_address(cls, address: str | None, known: ValidationInfo) -> str | None:
        if address is None:
            return None
        name = str(known.field_name)
        address = read_database_url(address) if name == "database_url" else read_http_address(address)
        file = known.data.get(f"{name.removesuffix('_url')}_password_file")
        return address if file is None else with_password(address, file)
