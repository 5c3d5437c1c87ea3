"""Units as tasks of a Ray cluster, which this process asks as a client through `ray://HOST:PORT`.

A task gets rows and a recipe, and returns the files of its fits. So the cluster needs Morrow, but no way to PostgreSQL,
MLflow or an object store, and no secret goes there. The ledger holds what is left, and not Ray: after a lost head, this
process connects to the next one and submits again what has not come back. A task whose node is lost is repeated by Ray.
"""

import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import structlog

from contracts.calibration import Calibration
from contracts.errors import CycleError
from contracts.runtime.proxies import exempt_own
from store.units import NewUnit, UnitRow
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import HorizonVerdict
from trainer.evaluation.mixture import Mixture
from trainer.evaluation.units import KeptFit, OnEpoch, Unit, UnitResult, carry_out
from trainer.executors.unit_ledger import UnitLedger
from trainer.network.training_loop import EpochReport
from trainer.settings import TrainerSettings
from trainer.sharing.bundles import pack

log = structlog.get_logger(__name__)

# How often a unit is submitted before its cycle fails: Ray repeats it by itself where a node was lost.
_MAX_SUBMISSIONS = 5
_WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 5.0
# The settings that a node is told besides its threads. All others stay here: some hold passwords.
_TOLD = ("device", "max_members", "encoded_mib", "git_sha")
# Ray reports no use of it, and starts no cluster of its own if ours is away. No child of this process uses gRPC, whose
# handlers of a fork may end a child before it has begun.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_DEDUP_LOGS": "0",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


class RayAway(Exception):
    """The cluster does not answer, or has lost what it was asked."""


class Returned(msgspec.Struct, frozen=True):
    """What a task returns: the files of its fits by origin, and what a unit reports; or why it cannot be fitted."""

    result: UnitResult = UnitResult((), ())
    bundles: dict[int, bytes] = {}
    trouble: str | None = None


def fit_remotely(
    reading: Reading,
    origins: tuple[int, ...],
    judged: tuple[HorizonVerdict | None, Calibration, Mixture | None],
    settings: TrainerSettings,
) -> bytes:
    """Carry out a unit in a folder of this node, and return what is kept; settings name no server."""
    epochs: list[EpochReport] = []
    with tempfile.TemporaryDirectory(prefix="morrow-") as home:
        store = FitStore(Path(home), reading.schema.task)
        unit = Unit(reading, origins, *judged)
        try:
            fits = tuple(carry_out(unit, store, settings, epochs.append))
        except CycleError as error:
            return msgspec.msgpack.encode(Returned(trouble=str(error)))
        bundles = {fit.origin: pack(store.folder(fit.origin)) for fit in fits}
    return msgspec.msgpack.encode(Returned(UnitResult(fits, tuple(epochs)), bundles))


@dataclass(frozen=True)
class OnRay:
    """Carries out the units of a cycle on the cluster that the settings name."""

    ledger: UnitLedger
    settings: TrainerSettings

    def run(
        self,
        units: Sequence[Unit],
        store: FitStore,
        on_epoch: OnEpoch,
        before_keep: Callable[[], None] = lambda: None,
    ) -> Iterator[KeptFit]:
        """As `trainer.evaluation.units.Executor.run`. Waits for a cluster that is away as long as the cycle may."""
        left = {unit.digest: unit for unit in units}
        self._record(units)
        is_away = False
        while left:
            rows: list[UnitRow] = []
            try:
                with _connected(self.settings) as ray:
                    if is_away:
                        log.info("ray.reached", address=self.settings.ray_address)
                    is_away = False
                    rows = self._claim(left)
                    for row, returned in self._submit(ray, left, rows):
                        before_keep()
                        for origin, bundle in returned.bundles.items():
                            store.receive(origin, bundle)
                        self.ledger.end(row, returned.result)
                        del left[row.digest]
                        for epoch in returned.result.epochs:
                            on_epoch(epoch)
                        yield from returned.result.fits
            except RayAway as away:
                if not is_away:
                    remedy = "none needed if its head is being replaced; else check MORROW_RAY_ADDRESS"
                    log.warning("ray.away", reason=str(away), num_units=len(left), remedy=remedy)
                is_away = True
                self.ledger.give_up(row for row in rows if row.digest in left)
                time.sleep(_PAUSE_SECONDS)

    def _submit(
        self, ray: ModuleType, left: dict[str, Unit], rows: Sequence[UnitRow]
    ) -> Iterator[tuple[UnitRow, Returned]]:
        """Submit units at once; yields each with what it returned. Raises RayAway, and CycleError."""
        settings = self.settings
        told = {name: getattr(settings, name) for name in _TOLD}
        bare = TrainerSettings.model_construct(**told, home=Path(), threads=count_ray_threads(settings))
        with _translated(ray):
            task = ray.remote(fit_remotely).options(
                num_cpus=settings.ray_cpus, num_gpus=settings.ray_gpus, max_retries=settings.ray_retries
            )
            readings: dict[int, Any] = {}
            running = {}
            for row in rows:
                unit = left[row.digest]
                if id(unit.reading) not in readings:
                    readings[id(unit.reading)] = ray.put(unit.reading)
                judged = unit.verdict, unit.calibration, unit.mixture
                given = readings[id(unit.reading)], unit.origins, judged, bare
                running[task.remote(*given)] = row
        while running:
            with _translated(ray):
                ready, _ = ray.wait(list(running), timeout=_WAIT_SECONDS)
            for ref in ready:
                with _translated(ray):
                    content = ray.get(ref)
                returned = msgspec.msgpack.decode(content, type=Returned)
                if returned.trouble is not None:
                    raise CycleError(returned.trouble)
                yield running.pop(ref), returned

    def _record(self, units: Sequence[Unit]) -> None:
        made = [NewUnit(unit.digest, {"origins": unit.origins}) for unit in units]
        self.ledger.record(made, place=f"ray {self.settings.ray_address}")

    def _claim(self, left: dict[str, Unit]) -> list[UnitRow]:
        """Claim what is left. Raises CycleError if a unit was submitted too often."""
        claimed = [row for digest in left if (row := self.ledger.claim([digest])) is not None]
        assert len(claimed) == len(left), "nobody else claims units of this place"
        if any(row.attempts > _MAX_SUBMISSIONS for row in claimed):
            raise CycleError(f"The Ray cluster has lost a unit {_MAX_SUBMISSIONS} times; see the logs of its nodes.")
        return claimed


def count_ray_threads(settings: TrainerSettings) -> int:
    """Threads of a unit on a node: as set, else one for each CPU that it asks for."""
    return settings.threads or max(1, int(settings.ray_cpus))


def disconnect() -> None:
    """Leave the cluster if this process is connected to one: its tasks end."""
    if (ray := sys.modules.get("ray")) is not None:
        with suppress(Exception):
            ray.shutdown()


@contextmanager
def _connected(settings: TrainerSettings) -> Iterator[ModuleType]:
    """Ray's module, connected to the cluster for as long as this process has units for it. Raises RayAway."""
    os.environ.update(_ENVIRONMENT)
    import grpc
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    assert settings.ray_address is not None
    exempt_own(os.environ, settings.ray_address)
    try:
        if not _is_connected(ray):
            # Ray warns of an address that does not answer in time, and then raises ConnectionError.
            warnings.filterwarnings("ignore", "Ray Client connection timed out", UserWarning)
            ray.init(settings.ray_address, namespace="morrow", log_to_driver=False)
    except (OSError, RuntimeError, grpc.RpcError, ray.exceptions.RayError) as error:
        disconnect()
        raise RayAway(f"The Ray cluster at {settings.ray_address} does not answer: {_first_line(error)}.") from error
    try:
        yield ray
    except BaseException:  # whatever is at work there is not needed any more
        disconnect()
        raise


def _is_connected(ray: ModuleType) -> bool:
    """Whether this process is a client of a cluster; any call of Ray without one would look for another cluster."""
    return bool(ray.util.client.ray.is_connected())


@contextmanager
def _translated(ray: ModuleType) -> Iterator[None]:
    """Raises RayAway for what a lost head, node or worker brings, and CycleError for a mistake of the task itself.

    A head that has replaced another one refuses its clients by an error of gRPC.
    """
    import grpc

    try:
        if not _is_connected(ray):
            raise RayAway("The connection to the Ray cluster is lost.")
        yield
    except ray.exceptions.OutOfMemoryError as error:
        raise CycleError("A node of the Ray cluster has too little memory for a unit: raise MORROW_UNITS.") from error
    except ray.exceptions.RayTaskError as error:
        log.error("unit.failed", reason=str(error))
        raise CycleError(f"A unit failed on the Ray cluster: {_first_line(error.cause)}") from error
    except (ConnectionError, grpc.RpcError, ray.exceptions.RayError) as error:
        raise RayAway(f"The Ray cluster has lost units: {_first_line(error)}") from error


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
