"""The checks of this machine: the home folder, its copies of versions, the GPU and the trainer."""

import importlib.util
import os
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from cli.doctor.finding import Finding, fail, ok, warn
from contracts.errors import ArtefactRefused
from contracts.manifest import read_manifest
from service.models.local_copies import list_copies
from trainer.scheduling.liveness import heartbeat_file, is_alive
from trainer.settings import TrainerSettings

GIB = 2**30
LITTLE_SPACE = 5 * GIB
TOO_LITTLE_SPACE = GIB // 2


def examine_machine(settings: TrainerSettings, now: datetime) -> Iterator[Finding]:
    """Run all checks of this module."""
    home = settings.home.expanduser()
    if home.is_dir():
        yield examine_permissions(home)
        yield judge_space(home, shutil.disk_usage(home).free)
        yield from examine_copies(home / "models")
    else:
        yield warn(
            "home",
            f"there is no folder {home} yet",
            "run `morrow up`, which makes it; or set MORROW_HOME to another folder",
        )
    yield examine_device(settings)
    yield examine_trainer(settings, now)


def examine_permissions(home: Path) -> Finding:
    """Whether others can write to the home folder, which holds digests of keys, models and the database."""
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return fail("home", f"{home} cannot be written to by user id {os.geteuid()}", "run as its owner, or chown it")
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & stat.S_IWOTH:
        return fail("home", f"anyone may write to {home} (mode {mode:o})", f"chmod o-w {home}")
    return ok("home", f"{home}, mode {mode:o}")


def judge_space(home: Path, free: int) -> Finding:
    """Judge the free bytes on the home folder's file system."""
    words = f"{free / GIB:.1f} GiB free at {home}"
    remedy = "free some space, or move MORROW_HOME; `morrow runs prune` thins out the runs of old cycles"
    if free < TOO_LITTLE_SPACE:
        return fail("disk", words, remedy)
    return warn("disk", words, remedy) if free < LITTLE_SPACE else ok("disk", words)


def examine_copies(models: Path) -> Iterator[Finding]:
    """Compare every file of each version that this machine's API serves with its checksum."""
    for task, current in list_copies(models).items():
        folder, subject = models / task / current.version, f"copy {task}"
        try:
            read_manifest(folder)
        except ArtefactRefused as error:
            remedy = f"remove {folder} and restart the API, which downloads it again"
            yield fail(subject, f"version {current.version}: {error}", remedy)
        else:
            yield ok(subject, f"version {current.version} matches its manifest")


def examine_device(settings: TrainerSettings) -> Finding:
    """Whether fits run on a GPU, and whether they could."""
    if importlib.util.find_spec("torch") is None:
        return ok("GPU", "torch is not installed: no trainer runs here")
    import torch

    if torch.cuda.is_available() and settings.device != "cpu":
        return ok("GPU", f"fits run on {torch.cuda.get_device_name()}")
    if torch.cuda.is_available():
        return warn("GPU", "there is one, but MORROW_DEVICE is cpu", "set MORROW_DEVICE to auto")
    if settings.device == "cuda":
        return fail("GPU", "MORROW_DEVICE is cuda, and torch sees none", "set it to auto, or pass the GPU through")
    if shutil.which("nvidia-smi"):
        built = "for CUDA" if torch.version.cuda else "for the CPU only"
        return warn("GPU", f"there is a driver, but torch, built {built}, sees no GPU", "install torch's CUDA build")
    return ok("GPU", "none: fits run on the CPU")


def examine_trainer(settings: TrainerSettings, now: datetime) -> Finding:
    """Whether a trainer of this home is alive; one on another machine cannot be seen from here."""
    if is_alive(settings, now):
        return ok("trainer", "alive")
    seen = "has stopped" if heartbeat_file(settings).exists() else "has never run with this home"
    return warn("trainer", f"it {seen}: nothing is retrained from here", "run `morrow up` or `morrow trainer`")
