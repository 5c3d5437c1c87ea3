"""What a released model promises: the file `manifest.json` next to its graphs.

The graph `model.onnx` takes raw values. Clock, calendar, encoding, cohort, averaging and temperature are part of it:

    inputs   at          (n,)    int64    microseconds since the epoch
             numbers     (n, p)  double   numbers, integers, and booleans as 1 and 0, in task order, NaN where
                                          missing; absent where p = 0
             categories  (n, q)  string   category features in task order, "" where missing; absent where q = 0
    outputs  probabilities (n, C) float   in the order of `classes`, tempered  (classification)
             mean, scale   (n,)   float   in the target's own unit             (regression)

The graph `rate.onnx` has the same inputs and outputs, followed by `rate` (n, C), or `mean_rate` and `scale_rate` (n,).
These are the rates, per second, at which the outputs change with `at` while features and calendar stay fixed. Both
graphs have the temperature of the manifest's `calibration`, which an overlay of `releases` never changes.

If LightGBM is fitted next to the network, the trainer keeps a third graph, `experts.onnx`, which no service needs. Its
outputs are those of the network alone and then those of LightGBM, without a temperature.

The metadata `vocabularies` of `model.onnx` is a JSON list of the values that each category feature had in enough rows
of the fit, in task order. A value that is not among them is answered like any other unseen one.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.calibration import Calibration
from contracts.errors import ArtefactRefused
from contracts.task import Task, read_task

FORMAT_VERSION = 2
GRAPH_FILE = "model.onnx"
RATE_FILE = "rate.onnx"
EXPERTS_FILE = "experts.onnx"
MANIFEST_FILE = "manifest.json"
VOCABULARIES = "vocabularies"

Feed = dict[str, NDArray[Any]]
# A graph as a function: from names of outputs, and inputs by name, to these outputs.
Run = Callable[[Sequence[str], Feed], Sequence[NDArray[Any]]]

# The allowed distance between an answer and the probe's: in probability, or as a share of the spread of its means and
# scales. The second is added as a share of the value, which is float32.
_PROBE_TOLERANCE = 1e-4
_PROBE_ROUNDING = 1e-6


class AgeError(msgspec.Struct, frozen=True):
    """The error matrix's figures of one age: mean error, predictive band of one future window, and `limit`.

    A realised window error above `limit`, the one-sided 99 % bound, closes the horizon.
    """

    age: int
    num_windows: int
    mean: float
    low: float
    high: float
    limit: float


class Probe(msgspec.Struct, frozen=True):
    """Synthetic rows and the outputs (n, K) that every loader of the graph must get for them."""

    at: list[int]
    numbers: list[list[float | None]]
    categories: list[list[str]]
    outputs: list[list[float]]


# In the manifest of a version whose graph is not in memory: nothing is compared with it.
NO_PROBE = Probe([], [], [], [])


class Experts(msgspec.Struct, frozen=True):
    """The checksum of `experts.onnx`, and the network's weight in the mixture of this origin; None until it is known.

    `is_blended` says whether the other graphs hold the trees too. In a backtest they never do: such a fit is only
    scored, and its weight is found after it.
    """

    checksum: str
    weight: float | None = None
    is_blended: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Moments and durations in microseconds. `task` is the whole spec: a service answers without a database.

    naive         the answer of the newest window known at the cutoff, the yardstick that this version must beat: a
                  share for each class, or mean and scale
    label_bounds  a regression's labels beyond these count as these when it is scored; None for classification
    gaps          times without rows between `trained_from` and the cutoff: begin, and end, which is outside
    newest        the newest row of its fit; None if an older Morrow wrote it
    own_scores    a regression's sorted nonconformity scores on the newest rows of its own fit, or some quantiles of
                  them; empty for classification and if an older Morrow wrote it
    weights       the weight of each expert in the answers; empty if the network answers alone
    experts       what the trainer knows of `experts.onnx`; None if there is none
    late_gain     share by which the loss on withheld rows fell from the middle third of pre-training to its last third;
                  None if it was not watched
    batch_size    rows of a minibatch of its fit; None if an older Morrow wrote it: then the task's training holds it
    """

    format_version: int
    task: dict[str, object]
    schema_id: int
    recipe: str
    classes: list[str]
    trained_from: int
    cutoff: int
    window: int
    horizon: int
    error_name: str
    ages: list[AgeError]
    calibration: Calibration
    naive: list[float]
    label_bounds: tuple[float, float] | None
    num_rows: int
    rows_digest: str
    read_at: int
    seeds: list[int]
    batch_size: int | None = None
    newest: int | None = None
    gaps: list[tuple[int, int]] = []
    own_scores: list[float] = []
    weights: dict[str, float] = {}
    experts: Experts | None = None
    late_gain: float | None = None
    device: str
    git_sha: str
    checksums: dict[str, str]
    probe: Probe

    @property
    def valid_until(self) -> int:
        return self.cutoff + self.horizon * self.window

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs of both graphs."""
        return ("probabilities",) if self.classes else ("mean", "scale")

    @property
    def rate_names(self) -> tuple[str, ...]:
        """The further outputs of the rate graph: the rate of each output, per second."""
        return ("rate",) if self.classes else ("mean_rate", "scale_rate")

    def parse_task(self) -> Task:
        """The task as this Morrow reads it. Raises ArtefactRefused, for example for a spec of older rules."""
        try:
            return read_task(self.task)
        except ValueError as error:
            raise ArtefactRefused("The manifest's task cannot be read.") from error


def encode_manifest(manifest: Manifest) -> bytes:
    """Indented JSON, readable in MLflow's artefact view."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest and check every file it lists. Raises ArtefactRefused."""
    manifest = decode_manifest(folder)
    for name in manifest.checksums:
        with _reading(name):
            found = checksum(folder / name)
        _check_checksum(manifest, name, found)
    return manifest


def read_artefact(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read the manifest and every file it lists, each once, and check them. Raises ArtefactRefused."""
    manifest, files = decode_manifest(folder), dict[str, bytes]()
    for name in manifest.checksums:
        with _reading(name):
            files[name] = (folder / name).read_bytes()
        _check_checksum(manifest, name, hashlib.sha256(files[name]).hexdigest())
    return manifest, files


def decode_manifest(folder: Path) -> Manifest:
    """The manifest alone, if this Morrow reads its format and the file names it lists are safe.

    Raises ArtefactRefused.
    """
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise ArtefactRefused(f"The manifest cannot be read: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise ArtefactRefused(f"The manifest has format {manifest.format_version}; this Morrow reads {FORMAT_VERSION}.")
    for name in manifest.checksums:
        if Path(name).name != name:
            raise ArtefactRefused(f"{name!r} is not the name of a file next to the manifest.")
    for name in (GRAPH_FILE, RATE_FILE):
        if name not in manifest.checksums:
            raise ArtefactRefused(f"The manifest does not vouch for {name}.")
    return manifest


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtefactRefused(f"{name} cannot be read: {error}") from error


def _check_checksum(manifest: Manifest, name: str, found: str) -> None:
    if found != manifest.checksums[name]:
        raise ArtefactRefused(f"{name} has another checksum than the manifest says.")


def graph_feed(
    task: Task, at: NDArray[np.int64], numbers: NDArray[np.float64], categories: NDArray[np.object_]
) -> Feed:
    """The graph's inputs for rows: at `(n,)`, numbers `(n, p)`, categories `(n, q)` of str; empty ones are left out."""
    feed: Feed = {"at": at}
    if task.numbers:
        feed["numbers"] = numbers
    if task.categories:
        feed["categories"] = categories
    return feed


def check_probe(manifest: Manifest, run: Run, *, with_rates: bool = False) -> None:
    """Ask a graph the probe's rows, and `rate.onnx` also for its rates, of which the probe holds no expected values.

    Raises ArtefactRefused if the graph fails, answers otherwise, or gives rates that are not finite or not one per
    output.
    """
    probe, task = manifest.probe, manifest.parse_task()
    try:
        count = len(probe.at)
        feed = graph_feed(
            task,
            np.array(probe.at, np.int64),
            np.array(probe.numbers, np.float64).reshape(count, len(task.numbers)),
            np.array(probe.categories, object).reshape(count, len(task.categories)),
        )
        expected = np.array(probe.outputs, np.float64).reshape(count, -1)
    except (ValueError, OverflowError) as error:
        raise ArtefactRefused(f"The probe cannot be read: {error}") from error
    try:
        found = np.column_stack(run(manifest.output_names, feed)).astype(np.float64)
        rates = np.column_stack(run(manifest.rate_names, feed)) if with_rates else np.zeros(expected.shape)
    except Exception as error:  # a runtime's errors have no root in common
        raise ArtefactRefused(f"The graph does not run on the probe: {error}") from error
    if count == 0 or found.shape != expected.shape or rates.shape != expected.shape:
        raise ArtefactRefused(f"The graph answers the probe with {found.shape}, not {expected.shape}.")
    spread = 1.0 if task.is_classification else np.ptp(expected[:, 0]) + np.max(expected[:, 1])
    if not np.all(np.abs(found - expected) <= _PROBE_TOLERANCE * spread + _PROBE_ROUNDING * np.abs(expected)):
        raise ArtefactRefused("The graph answers the probe's rows otherwise than the manifest says.")
    if not np.isfinite(rates).all():
        raise ArtefactRefused("The graph gives the probe's rows rates that are not finite.")


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
