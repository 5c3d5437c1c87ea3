"""Copies of the paper's files in which everything from the test domain on is poison, and the same of loaded rows.

Only a row's place is left: its time, or its position in the file.
"""

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.paper.sets.cut import Contents, PaperSet
from benchmarks.paper.sets.files import FILES
from benchmarks.paper.sets.images import Images, drawn
from benchmarks.paper.sets.tabular import Tabular
from benchmarks.paper.sets.texts import Texts

# Half-hours of the raw file of Elec2 before the days 21 June and 22 November 1998, its domains 29 and 40.
_ELEC2_ROWS = {29: 37_248, 40: 44_640}
_ELEC2_KEPT = {29: 19_485, 40: 26_877}


def poison_files(name: str, source: Path, target: Path) -> None:
    """Write the files of a set with every row of its test domain and later ones poisoned."""
    for file in FILES[name]:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (target / file).write_bytes((source / file).read_bytes())
    _POISONERS[name](target)


def poison_rows(paper_set: PaperSet, origin: int) -> PaperSet:
    """The same set with every loaded row of domain `origin` and later ones poisoned."""
    is_late = paper_set.contents.at >= paper_set.edges[origin]
    return replace(paper_set, contents=_poisoned(paper_set.contents, is_late))


def _poisoned(contents: Contents, is_late: NDArray[np.bool_]) -> Contents:
    if isinstance(contents, Texts):
        words = tuple(("poison", "pill") if late else text for text, late in zip(contents.words, is_late, strict=True))
        return replace(contents, words=words, topics=np.where(is_late, (contents.topics + 1) % 8, contents.topics))
    if isinstance(contents, Images):
        pixels = np.where(is_late[:, None], 1 - contents.pixels, contents.pixels)
        return replace(contents, pixels=pixels, digits=np.where(is_late, (contents.digits + 1) % 10, contents.digits))
    assert isinstance(contents, Tabular)
    rows = contents.rows
    wrong = (rows.labels + 1) % len(rows.classes) if rows.classes else 1000 * rows.labels
    labels = np.where(is_late, wrong, rows.labels)
    vocabularies = tuple(("a poison", *known, "poison") for known in rows.vocabularies)
    late_codes = np.array([len(known) - 1 for known in vocabularies], np.int32)
    poisoned = replace(
        rows,
        numbers=np.where(is_late[:, None], 1000 * rows.numbers + 7, rows.numbers),
        vocabularies=vocabularies,
        categories=np.where(is_late[:, None], late_codes, rows.categories + 1).astype(np.int32),
        labels=labels.astype(np.int32) if rows.classes else labels.astype(np.float64),
    )
    return replace(contents, rows=poisoned)


def _poison_arrays(file: str, first: int) -> Callable[[Path], None]:
    def poison(folder: Path) -> None:
        with np.load(folder / file) as stored:
            arrays = dict(stored)
        arrays["X"][first:] = 1000 * arrays["X"][first:] + 7
        arrays["Y"][first:] = 1 - arrays["Y"][first:]
        np.savez(folder / file, **arrays)

    return poison


def _poison_shuttle(first_time: int, end_time: int) -> Callable[[Path], None]:
    """Times after the test's become far ones, so that a scale of time that reads them would be seen."""

    def poison(folder: Path) -> None:
        path = folder / "shuttle/shuttle_all.csv.gz"
        frame = pd.read_csv(path)
        is_late = frame["time"] >= first_time
        frame.loc[is_late, "f2":"f9"] = 1000 * frame.loc[is_late, "f2":"f9"] + 7
        frame.loc[is_late, "class"] = frame.loc[is_late, "class"] % 7 + 1
        frame.loc[frame["time"] >= end_time, "time"] += 10_000
        frame.to_csv(path, index=False)

    return poison


def _poison_reuters(folder: Path) -> None:
    path = folder / "reuters/reuters_r8_modapte.csv.gz"
    frame = pd.read_csv(path)
    is_late = frame["date"] >= "1987-04-08"
    frame.loc[is_late, "body"] = "poison pill"
    frame.loc[is_late, "topics"] = np.where(frame.loc[is_late, "topics"] == "earn", "acq", "earn")
    frame.to_csv(path, index=False)


def _poison_half_hours(domain: int) -> Callable[[Path], None]:
    def poison(folder: Path) -> None:
        path = folder / "elec2/elec2.data.gz"
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        for k in range(_ELEC2_ROWS[domain], len(lines)):
            date, _, period, *numbers, label = (value.strip() for value in lines[k].split(","))
            wrong = [value if value == "?" else str(1000 * float(value) + 7) for value in numbers]
            lines[k] = ", ".join([date, "9", period, *wrong, "UP" if label == "DOWN" else "DOWN"])
        path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))

    return poison


def _poison_both(domain: int) -> Callable[[Path], None]:
    def poison(folder: Path) -> None:
        _poison_arrays("elec2/elec2_paper_processed.npz", _ELEC2_KEPT[domain])(folder)
        _poison_half_hours(domain)(folder)

    return poison


def _poison_house(year: int) -> Callable[[Path], None]:
    def poison_year(folder: Path) -> None:
        path = folder / "house/raw_sales.csv.gz"
        frame = pd.read_csv(path)
        is_tested = frame["datesold"].str.contains(f"/{year} ")
        for column, poison in (("postcode", 9999), ("propertyType", "castle"), ("bedrooms", 999)):
            frame.loc[is_tested, column] = poison
        frame.loc[is_tested, "price"] *= 1000
        frame.to_csv(path, index=False)

    return poison_year


def _poison_appliance(folder: Path) -> None:
    path = folder / "energy/energydata_complete.zip"
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        frame = pd.read_csv(io.BytesIO(archive.read(name)))
    numbers = frame.columns.drop("date")
    frame[numbers] = frame[numbers].where(frame["date"] < "2016-05-10", 1000 * frame[numbers] + 7)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, frame.to_csv(index=False))


def _poison_mnist(folder: Path) -> None:
    tested = drawn(0, 10_000)[-1]
    images_path, labels_path = (folder / file for file in FILES["mnist"])
    images = np.frombuffer(gzip.decompress(images_path.read_bytes()), np.uint8).copy()
    labels = np.frombuffer(gzip.decompress(labels_path.read_bytes()), np.uint8).copy()
    images[16:].reshape(-1, 784)[tested] ^= 255
    labels[8 + tested] = (labels[8 + tested] + 1) % 10
    images_path.write_bytes(gzip.compress(images.tobytes(), 1))
    labels_path.write_bytes(gzip.compress(labels.tobytes(), 1))


_POISONERS: dict[str, Callable[[Path], None]] = {
    "moons": _poison_arrays("moons/moons_paper_processed.npz", 1800),
    "mnist": _poison_mnist,
    "shuttle": _poison_shuttle(97, 107),
    "shuttle_raw": _poison_shuttle(70, 80),
    "reuters": _poison_reuters,
    "elec2": _poison_both(29),
    "elec2_40": _poison_both(40),
    "elec2_rows": _poison_half_hours(29),
    "elec2_rows_40": _poison_half_hours(40),
    "house": _poison_house(2019),
    "house_2018": _poison_house(2018),
    "appliance": _poison_appliance,
}
POISONED = tuple(_POISONERS)
