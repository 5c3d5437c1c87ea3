"""Settings that all processes of Morrow share; `service.settings` and `trainer.settings` add their own.

An entry point reads them from the environment once and passes them down.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.runtime.addresses import with_password


class SharedSettings(BaseSettings):
    """Settings of API, trainer and command line. An empty variable counts as unset."""

    model_config = SettingsConfigDict(env_prefix="MORROW_", env_ignore_empty=True, frozen=True, extra="ignore")

    home: Path = Field(
        Path.home() / ".morrow", description="folder for local state: the embedded database, model copies"
    )
    database_password_file: Path | None = Field(
        None, description="file with the password of the database's user, to keep it out of the URL"
    )
    database_url: str | None = Field(
        None, description="SQLAlchemy URL postgresql+psycopg://…; if unset, the embedded PostgreSQL is used"
    )
    mlflow_password_file: Path | None = Field(
        None, description="file with the password of MLflow's user, if MLflow asks for one"
    )
    mlflow_url: str | None = Field(
        None,
        description="address of the MLflow server, such as http://mlflow:5000; http://USER@… with a password",
    )
    cycle_limit_seconds: float = Field(3600.0, gt=0, description="time limit of one cycle; a longer one is killed")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else json")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="lowest level that is logged")

    @field_validator("database_url", "mlflow_url")
    @classmethod
    def _fill_password(cls, address: str | None, known: ValidationInfo) -> str | None:
        file = known.data.get(f"{str(known.field_name).removesuffix('_url')}_password_file")
        return address if address is None or file is None else with_password(address, file)
