"""Reuters: news of early 1987 by one of the eight topics of R8; three fortnights, and 8 to 23 April as the test.

The paper counts 4,297 and 685 articles, which no cut by date of the collection gives; ours has 5,485 and 841. A text
is its title and body in lower case: the first 200 of its words and numbers, every number being the same word.
"""

import gzip
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.networks import BagNetwork
from benchmarks.paper.sets.cut import DAY, Encoding, PaperSet, clock_of
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.splits import Metric
from contracts.clock import parse_moment
from contracts.task import Training
from trainer.network.network import Build, Network

NUM_WORDS = 200
# A word of a single text says nothing about another one.
MIN_TEXTS = 2
TOPICS = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
_EDGES = ("1987-02-26", "1987-03-12", "1987-03-26", "1987-04-08", "1987-04-24")
_WINDOW = 14 * DAY
_WORD = re.compile(r"[a-z]+|\d[\d.,/]*")
_NUMBER = "0"


@dataclass(frozen=True)
class Texts:
    """Words of each text, and topics `(n,)`. The vocabulary comes from the known texts."""

    at: NDArray[np.int64]
    words: tuple[tuple[str, ...], ...]
    topics: NDArray[np.int64]
    build: Build[Network] = field(default=BagNetwork)
    task: None = None
    metric: Metric = "error_percent"

    def encode(self, known: slice, unseen: slice, _training: Training, /) -> Encoding:
        """Codes `(n, 200)`: 1 + a word's position in the vocabulary; 0 for any other word and after the text's end."""
        rows = slice(known.start, unseen.stop)
        known_words = vocabulary(self.words[known])
        topics = self.topics[rows]
        return Encoding(
            dense=np.zeros((len(topics), 0), np.float32),
            codes=word_codes(self.words[rows], known_words),
            targets=topics,
            answers=topics.astype(np.float64),
            vocabulary_sizes=(1 + len(known_words),),
            num_outputs=len(TOPICS),
        )


def load_reuters(folder: Path) -> PaperSet:
    """5,485 and 841 articles. Raises NotFound."""
    import pandas as pd

    (path,) = find_files(folder, "reuters")
    frame = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes()))).sort_values("date", kind="stable")
    at = pd.to_datetime(frame["date"], utc=True).astype("datetime64[us, UTC]").to_numpy("datetime64[us]")
    texts = frame["title"].fillna("") + " " + frame["body"].fillna("")
    num_domains = len(_EDGES) - 1
    return PaperSet(
        name="reuters",
        title="Reuters",
        contents=Texts(
            at=at.astype(np.int64),
            words=tuple(words_of(text) for text in texts),
            topics=np.array([TOPICS.index(topic) for topic in frame["topics"]], np.int64),
        ),
        edges=tuple(parse_moment(f"{day}T00:00:00Z") for day in _EDGES),
        clock=clock_of(_WINDOW, num_domains),
        test_origin=num_domains - 1,
        files=FILES["reuters"],
    )


def words_of(text: str) -> tuple[str, ...]:
    """The first 200 words; a number is the word 0."""
    found = _WORD.findall(text.lower())[:NUM_WORDS]
    return tuple(_NUMBER if word[0].isdigit() else word for word in found)


def vocabulary(texts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Words of at least two texts, in alphabetical order."""
    counts = Counter(word for words in texts for word in set(words))
    return tuple(sorted(word for word, count in counts.items() if count >= MIN_TEXTS))


def word_codes(texts: Sequence[tuple[str, ...]], known: Sequence[str]) -> NDArray[np.int64]:
    """Codes `(n, 200)` of texts by a vocabulary; words that it lacks leave no gap."""
    code_of = {word: code for code, word in enumerate(known, start=1)}
    codes = np.zeros((len(texts), NUM_WORDS), np.int64)
    for row, words in zip(codes, texts, strict=True):
        found = [code_of[word] for word in words if word in code_of]
        row[: len(found)] = found
    return codes
