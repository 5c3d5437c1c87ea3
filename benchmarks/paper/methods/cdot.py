"""CDOT: the labelled rows of recent domains, moved to the future by optimal transport, teach a time-oblivious network.

The paper's definition (appendix A.2): couplings of entropic optimal transport between successive domains, regularised
to be smooth along time; between domains whose labels are known, two rows of different classes have a coupling of 0; the
rows of the last k domains are moved to the future and a classifier is trained on their images. The last coupling reads
the future's inputs, without targets, as this method must.

With n rows X of a domain, m rows X' of the next and row i's image X̂_i = Σ_j γ_ij·X'_j / Σ_j γ_ij, a coupling is

    argmin_γ ⟨γ, C⟩ − ε·H(γ) + η·mean_i ‖X̂_i − (X_i + v_i)‖²     C_ij = ‖X_i − X'_j‖², in units of its largest

where v_i is how far row i came in the step before: maps are smooth if a row continues in its direction. A row without a
step before, such as all of the first domain, has no v and does not count in the mean's sum. Classes are coupled one by
one with uniform weights, so that a class which becomes rarer is moved whole. Rows whose class the next domain lacks
wait and are coupled with a later one. From domain to domain the couplings are composed. The moved rows are trained on
by the plan of `baseline`, each with the weight of one row.

Legend: n, m rows   d columns of numbers   γ coupling `(n, m)`   ε _ENTROPY   η _SMOOTHNESS
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.methods.house import network_method
from benchmarks.paper.methods.rows import spread
from benchmarks.paper.splits import Split
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded

# The paper moves all domains, except on Elec2, where the last 15 of 29 do best.
_MOST_DOMAINS = 15
# Rows of a domain that are moved, evenly spread over it: a coupling costs the square of their number.
_MOST_ROWS = 1000
_ENTROPY = 0.01
_SMOOTHNESS = 1.0
_PASSES, _SINKHORN_PASSES = 10, 500

Points = NDArray[np.float64]
Coupling = NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """Rows that are coupled: points `(n, d)` and classes `(n,)`; the last `num_waiting` belong to earlier domains."""

    points: Points
    classes: NDArray[np.int64]
    num_waiting: int = 0

    @property
    def num_own(self) -> int:
        return len(self.points) - self.num_waiting


def cdot_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Move the known rows to the unseen ones and train on them. Raises CycleError if rows are no classified numbers.

    Nothing is drawn in the transport, so all seeds train on the same rows.
    """
    num_numbers = split.known.dense.shape[1] - 2 * len(training.calendar)
    if not split.is_classification:
        raise CycleError("CDOT moves rows of one class to rows of the same class: a regression has none.")
    if split.known.codes.shape[1] or num_numbers == 0:
        raise CycleError("CDOT moves rows along their numbers: categories and texts cannot be moved.")
    moved = transported(split.known, split.unseen, num_numbers)
    return network_method("baseline")(replace(split, known=moved), training, seeds)


def transported(known: Encoded, unseen: Encoded, num_numbers: int) -> Encoded:
    """Some of the known rows, their first `num_numbers` columns moved to where `unseen` is. Its targets are not read.

    At most `_MOST_ROWS` of each of the last `_MOST_DOMAINS` domains, in their order.
    """
    starts = np.unique(known.windows)[-_MOST_DOMAINS:]
    chosen = [spread(np.flatnonzero(known.windows == start), _MOST_ROWS) for start in starts]
    points, classes = known.dense[:, :num_numbers].astype(np.float64), known.targets.astype(np.int64)
    future = unseen.dense[spread(np.arange(len(unseen.u)), _MOST_ROWS), :num_numbers].astype(np.float64)
    images = move([Domain(points[rows], classes[rows]) for rows in chosen], future)
    rows = known.take(np.concatenate(chosen))
    rows.dense[:, :num_numbers] = np.concatenate(images)
    return rows


def move(domains: Sequence[Domain], future: Points) -> list[Points]:
    """The images `(n, d)` of each domain's rows in the future `(m, d)`, in the order of time."""
    current, came = domains[0], np.full_like(domains[0].points, np.nan)
    path, shares = [current], []
    for following in domains[1:]:
        current, share, came = _step(current, following, came)
        path.append(current)
        shares.append(share)
    coupling = couple(current.points, future, came)
    images = [_shares(coupling) @ future]
    for share in reversed(shares):
        images.append(share @ images[-1])
    return [image[: domain.num_own] for domain, image in zip(path, reversed(images), strict=True)]


def couple_classes(before: Domain, after: Domain, came: Points) -> Coupling:
    """The coupling `(n, m)` of two domains: 0 between classes, and a uniform one in each class that both have."""
    coupling = np.zeros((len(before.points), len(after.points)))
    for label in np.intersect1d(before.classes, after.classes):
        rows, columns = np.flatnonzero(before.classes == label), np.flatnonzero(after.classes == label)
        block = couple(before.points[rows], after.points[columns], came[rows])
        coupling[np.ix_(rows, columns)] = block * len(rows) / len(before.points)
    return coupling


def couple(before: Points, after: Points, came: Points) -> Coupling:
    """The smooth entropic coupling `(n, m)` of the module's docstring, with uniform weights.

    `came` `(n, d)` are the v_i, NaN for rows without one.
    """
    import ot

    num_rows, goals = len(before), before + came
    costs = ot.dist(before, after)
    unit = costs.max() or 1.0
    scaled = costs / unit
    weights = np.full(num_rows, 1 / num_rows), np.full(len(after), 1 / len(after))

    def misses(coupling: Coupling) -> Points:
        return np.nan_to_num(num_rows * coupling @ after - goals)

    def roughness(coupling: Coupling) -> float:
        return float(np.square(misses(coupling)).sum() / (num_rows * unit))

    def slope(coupling: Coupling) -> Coupling:
        """∂ roughness / ∂γ but for a constant per row, which changes no coupling: it keeps exponents near 0."""
        slopes = 2 * misses(coupling) @ after.T / unit
        return np.asarray(slopes - (slopes + scaled / _SMOOTHNESS).min(1, keepdims=True))

    coupling = ot.optim.gcg(
        *weights, scaled, _ENTROPY, _SMOOTHNESS, roughness, slope,
        numItermax=_PASSES, numInnerItermax=_SINKHORN_PASSES, warn=False,
    )  # fmt: skip
    return np.asarray(coupling, np.float64)


def _step(before: Domain, after: Domain, came: Points) -> tuple[Domain, NDArray[np.float64], Points]:
    """The next domain with its waiting rows, the shares by which rows move into it, and how far each came."""
    coupling = couple_classes(before, after, came)
    waits = coupling.sum(1) == 0
    num_waiting = int(waits.sum())
    current = Domain(
        points=np.concatenate([after.points, before.points[waits]]),
        classes=np.concatenate([after.classes, before.classes[waits]]),
        num_waiting=num_waiting,
    )
    share = np.zeros((len(before.points), len(current.points)))
    share[:, : len(after.points)] = _shares(coupling)
    share[waits, len(after.points) :] = np.eye(num_waiting)
    origins = _shares(coupling.T) @ before.points
    arrived = coupling.sum(0) > 0
    steps = np.where(arrived[:, None], after.points - origins, np.nan)
    return current, share, np.concatenate([steps, np.full((num_waiting, steps.shape[1]), np.nan)])


def _shares(coupling: Coupling) -> NDArray[np.float64]:
    """The same with rows that sum to 1; a row of zeros stays."""
    sums = coupling.sum(1, keepdims=True)
    return np.asarray(coupling / np.where(sums > 0, sums, 1))
