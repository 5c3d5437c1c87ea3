"""Settings that every process of Morrow shares; `service.settings` and `trainer.settings` add their own.

Read from the environment once, at the entry point, and passed down.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.runtime.addresses import with_password


class SharedSettings(BaseSettings):
    """What API, trainer and command line agree on; a variable that is set to nothing is unset."""

    model_config = SettingsConfigDict(env_prefix="MORROW_", env_ignore_empty=True, frozen=True, extra="ignore")

    home: Path = Field(
        Path.home() / ".morrow", description="folder for local state: the embedded database, model copies"
    )
    database_password_file: Path | None = Field(
        None, description="file with the password of the database's user, which then stays out of the URL"
    )
    database_url: str | None = Field(
        None, description="SQLAlchemy URL postgresql+psycopg://…; the embedded PostgreSQL is used where unset"
    )
    mlflow_password_file: Path | None = Field(
        None, description="file with the password of MLflow's user, where MLflow asks for one"
    )
    mlflow_url: str | None = Field(
        None,
        description="address of the MLflow server, such as http://mlflow:5000; http://USER@… with a password",
    )
    cycle_limit_seconds: float = Field(3600.0, gt=0, description="time limit of one cycle; over it the fit is killed")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto is text on a terminal, else json")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="least level that is logged")

    @field_validator("database_url", "mlflow_url")
    @classmethod
    def _fill_password(cls, address: str | None, known: ValidationInfo) -> str | None:
        file = known.data.get(f"{str(known.field_name).removesuffix('_url')}_password_file")
        return address if address is None or file is None else with_password(address, file)
