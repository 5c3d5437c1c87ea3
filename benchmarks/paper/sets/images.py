"""Rot-MNIST: handwritten digits that turn counter-clockwise by 15° from each domain to the next.

The paper draws 1,000 images a domain from MNIST; ours come from its 10,000 test images, no image twice. They are
turned about their centre with linear interpolation; the outside is black.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.networks import ConvNetwork
from benchmarks.paper.sets.cut import DAY, Encoding, PaperSet, clock_of, even_edges
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.splits import Metric
from contracts.task import Training
from trainer.network.network import Build, Network
from trainer.tuning.space import Space

NUM_DOMAINS, IMAGES, TURN, SIDE = 5, 1000, 15, 28
_NUM_DIGITS = 10
# Four domains are known. A network of images is deeper and wider than one of rows, and each of its steps costs more.
_SPACE: Space = {
    "history": (2, None),
    "num_layers": (3, 4, 5),
    "width": (64, 128, 256),
    "pretrain_epochs": (10, 20, 40),
    "gi_pretrain": (False,),
}
_IMAGES_HEADER, _LABELS_HEADER = 16, 8


@dataclass(frozen=True)
class Images:
    """Pixels `(n, 784)` in [0, 1], from black to white, and digits `(n,)`. Nothing is learned from them."""

    at: NDArray[np.int64]
    pixels: NDArray[np.float32]
    digits: NDArray[np.int64]
    build: Build[Network]
    task: None = None
    metric: Metric = "error_percent"

    def encode(self, known: slice, unseen: slice, _training: Training, /) -> Encoding:
        rows = slice(known.start, unseen.stop)
        return Encoding(
            dense=self.pixels[rows],
            codes=np.zeros((rows.stop - rows.start, 0), np.int64),
            targets=self.digits[rows],
            answers=self.digits[rows].astype(np.float64),
            vocabulary_sizes=(),
            num_outputs=_NUM_DIGITS,
        )


def load_mnist(
    folder: Path,
    *,
    seed: int = 0,
    name: str = "mnist",
    title: str = "Rot-MNIST",
    build: Build[Network] = ConvNetwork,
) -> PaperSet:
    """1,000 images in each of five domains, the last the test, for a network. Raises NotFound."""
    images_path, labels_path = find_files(folder, name)
    images = np.frombuffer(gzip.decompress(images_path.read_bytes()), np.uint8, offset=_IMAGES_HEADER)
    labels = np.frombuffer(gzip.decompress(labels_path.read_bytes()), np.uint8, offset=_LABELS_HEADER)
    chosen = drawn(seed, len(labels))
    upright = images.reshape(-1, SIDE, SIDE)[chosen].astype(np.float32) / 255
    pixels = [turned(upright[number], TURN * number).reshape(IMAGES, -1) for number in range(NUM_DOMAINS)]
    return PaperSet(
        name=name,
        title=title,
        contents=Images(
            at=np.repeat(np.arange(NUM_DOMAINS) * DAY, IMAGES),
            pixels=np.concatenate(pixels),
            digits=labels[chosen].ravel().astype(np.int64),
            build=build,
        ),
        edges=even_edges(0, DAY, NUM_DOMAINS),
        clock=clock_of(DAY, NUM_DOMAINS),
        test_origin=NUM_DOMAINS - 1,
        files=FILES[name],
        space=_SPACE,
    )


def turned(images: NDArray[np.float32], degrees: int) -> NDArray[np.float32]:
    """Images `(n, 28, 28)` turned about their centre, counter-clockwise."""
    from scipy import ndimage

    result: NDArray[np.float32] = ndimage.rotate(images, degrees, axes=(2, 1), reshape=False, order=1)
    return result


def drawn(seed: int, num_images: int) -> NDArray[np.int64]:
    """Positions of each domain's images in the file, `(5, 1000)`, all different."""
    order = np.random.default_rng(seed).permutation(num_images)
    return order[: NUM_DOMAINS * IMAGES].reshape(NUM_DOMAINS, IMAGES)
