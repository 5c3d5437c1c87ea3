"""Settings of the trainer process, read once from the environment (`MORROW_…`) and passed down."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field, ValidationInfo, field_validator

from contracts.runtime.addresses import read_database_url, split_credentials, with_password
from contracts.runtime.cores import count_cores, share_cores
from contracts.runtime.object_stores import read_store_url
from contracts.runtime.settings import SharedSettings


def _find_git_sha() -> str:
    """The revision of the working copy that this code runs from; `unknown` outside of one."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.strip()


ENCODED_MIB = 256
_RAY_ADDRESS = re.compile(r"ray://(?:[\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})/?")


class TrainerSettings(SharedSettings):
    """What the trainer may use and how long it may take."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto takes CUDA where there is one; cuda without one fails every cycle loudly"
    )
    threads: int = Field(
        0,
        ge=0,
        description="threads of one fit on the CPU; 0 shares the container's cores among the training processes",
    )
    training_workers: int = Field(
        1, ge=1, le=256, description="training processes that carry out cycles of different tasks side by side"
    )
    executor: Literal["local", "ray"] = Field(
        "local",
        description="where the fits of a cycle are made: in training processes of trainers, or on a Ray cluster",
    )
    ray_address: str | None = Field(
        None,
        validate_default=True,
        description="client server of the Ray cluster's head for MORROW_EXECUTOR=ray: ray://HOST:10001",
    )
    ray_cpus: float = Field(1.0, gt=0, description="CPUs that a unit asks the Ray cluster for, and its threads")
    ray_gpus: float = Field(0.0, ge=0, description="GPUs that a unit asks the Ray cluster for; a fraction shares one")
    ray_retries: int = Field(3, ge=0, description="times that Ray repeats a unit whose node is lost")
    units: int = Field(
        0,
        ge=0,
        le=1000,
        description="units that the past fits of a backtest are cut into, to be carried out side by side; 0 for as "
        "many as training processes. Another number may change the last digits of errors",
    )
    tick_seconds: float = Field(1.0, gt=0, description="how often the scheduler looks for what is due")
    lease_seconds: float = Field(30.0, ge=1, description="how long a silent trainer keeps its cycle")
    max_attempts: int = Field(3, ge=1, description="attempts at one cutoff before the next window is waited for")
    retry_seconds: float = Field(30.0, gt=0, description="pause before the second attempt; doubles with each further")
    fits_url: str | None = Field(
        None,
        description="object store that trainers share kept fits through: file:///FOLDER, s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; if unset, they stay in the folder candidates of MORROW_HOME",
    )
    fits_cache_mib: int = Field(
        1024, ge=1, description="MiB of kept fits that a trainer with MORROW_FITS_URL holds on its own disk"
    )
    read_database_url: str | None = Field(
        None,
        description="URL of a standby of the database that the rows of fits are read from, as MORROW_DATABASE_URL is "
        "written and with the same password file; if unset, the primary server is read",
    )
    read_wait_seconds: float = Field(
        30.0,
        ge=0,
        description="seconds that a fit waits until the standby has replayed all that the primary held; after them it "
        "reads the primary",
    )
    refused_days: float | None = Field(
        None,
        gt=0,
        description="days after which refused rows are deleted; if unset, they stay until `morrow refused prune`",
    )
    seal_after: float | None = Field(
        None,
        gt=0,
        description="days after whose end the events of a window are moved to files, in MORROW_FITS_URL or else below "
        "MORROW_HOME; if unset, they stay in the database until `morrow events seal`",
    )
    label_wait_days: float = Field(
        30,
        gt=0,
        description="days that a label waits for its event; then it becomes a refused row, whose reason says so",
    )
    hooks_max_attempts: int = Field(
        10, ge=1, le=100, description="attempts to send an event of a hook before it is given up; a test is tried once"
    )
    hooks_retry_seconds: float = Field(
        10.0,
        gt=0,
        description="pause after the first attempt that failed; each further one is three times as long, up to 6 hours",
    )
    max_members: int = Field(64, ge=1, description="most networks of a backtest that are trained side by side")
    encoded_mib: int = Field(
        ENCODED_MIB,
        ge=0,
        description="memory for the encoded rows of networks that are trained side by side, in MiB; if they need more, "
        "each minibatch is encoded when it is drawn, which changes no result",
    )
    git_sha: str = Field(default_factory=_find_git_sha, description="revision that releases are tagged with")

    @field_validator("read_database_url")
    @classmethod
    def _read_replica(cls, address: str | None, known: ValidationInfo) -> str | None:
        if address is None:
            return None
        file, url = known.data.get("database_password_file"), read_database_url(address)
        _, login = split_credentials(url)
        # A standby has the roles of its primary.
        return url if file is None or (login is not None and login.password) else with_password(url, file)

    @field_validator("ray_address")
    @classmethod
    def _read_ray_address(cls, address: str | None, known: ValidationInfo) -> str | None:
        if address is None:
            if known.data.get("executor") == "ray":
                raise ValueError("is not set, and MORROW_EXECUTOR=ray needs it: write ray://HOST:10001")
            return None
        found = _RAY_ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1]) < 2**16:
            raise ValueError("is no address of a Ray client server: write ray://HOST:10001")
        return address.rstrip("/")

    @field_validator("executor")
    @classmethod
    def _has_executor(cls, executor: str) -> str:
        if executor == "ray" and find_spec("ray") is None:
            raise ValueError("is ray, which is not installed: pip install 'morrow[ray]'")
        return executor

    @field_validator("fits_url")
    @classmethod
    def _read_store_url(cls, url: str | None) -> str | None:
        return None if url is None else read_store_url(url)


def sealed_store(settings: TrainerSettings) -> str:
    """The address of the object store for sealed events: that of kept fits, else a folder of this home."""
    return settings.fits_url or read_store_url(f"file://{quote(str((settings.home / 'objects').absolute()))}")


def count_threads(settings: TrainerSettings) -> int:
    """Threads for one fit: as set, else a share of the cores that affinity and the control group's quota leave us."""
    return settings.threads or share_cores(count_cores(), settings.training_workers)


def count_units(settings: TrainerSettings) -> int:
    """Units that the fits of a backtest are cut into: as set, else one for each training process."""
    return settings.units or settings.training_workers
