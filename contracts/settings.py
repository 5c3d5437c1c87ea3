"""Settings that every process of Morrow shares; `service.settings` and `trainer.settings` add their own.

Read from the environment once, at the entry point, and passed down.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SharedSettings(BaseSettings):
    """What API, trainer and command line agree on; a variable that is set to nothing is unset."""

    model_config = SettingsConfigDict(env_prefix="MORROW_", env_ignore_empty=True, frozen=True, extra="ignore")

    home: Path = Field(
        Path.home() / ".morrow", description="folder for local state: the embedded database, model copies"
    )
    database_url: str | None = Field(
        None, description="SQLAlchemy URL postgresql+psycopg://…; the embedded PostgreSQL is used where unset"
    )
    mlflow_url: str | None = Field(None, description="address of the MLflow server, such as http://mlflow:5000")
    cycle_limit_seconds: float = Field(3600.0, gt=0, description="time limit of one cycle; over it the fit is killed")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto is text on a terminal, else json")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="least level that is logged")
