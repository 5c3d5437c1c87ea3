"""The files of the paper's sets, and where they come from.

They lie in a folder that the user names, because not all of their licences allow handing them on.
"""

from pathlib import Path

from contracts.errors import NotFound

_DRAIN = "the repository BaiTheBest/DRAIN on GitHub"
_M5 = "Kaggle's competition m5-forecasting-accuracy"

ORIGINS = {
    "moons/moons_paper_processed.npz": f"{_DRAIN}: X, Y, U, A and domain_starts of the set Moons, packed",
    "mnist/t10k-images-idx3-ubyte.gz": "MNIST's 10,000 test images, yann.lecun.com/exdb/mnist",
    "mnist/t10k-labels-idx1-ubyte.gz": "MNIST's 10,000 test labels, yann.lecun.com/exdb/mnist",
    "shuttle/shuttle_all.csv.gz": "UCI's Statlog (Shuttle), both parts: time,f2,…,f9,class,split",
    "reuters/reuters_r8_modapte.csv.gz": "the Reuters-21578 collection: articles of one topic of R8, by ModApte",
    "elec2/elec2_paper_processed.npz": f"{_DRAIN}: X, Y, U, A and domain_starts of the set Elec2, packed",
    "elec2/elec2.data.gz": f"{_DRAIN}: classification/data/Elec2/elec2.data, compressed",
    "house/raw_sales.csv.gz": "Kaggle's data set htagholdings/property-sales: raw_sales.csv, compressed",
    "energy/energydata_complete.zip": "UCI's Appliances energy prediction (374)",
    "onp/OnlineNewsPopularity.csv": "UCI's Online News Popularity (332)",
    "m5/calendar.csv": _M5,
    "m5/sales_train_evaluation.csv": _M5,
}

# Set -> the files that it is read from. A set without files draws its rows.
FILES: dict[str, tuple[str, ...]] = {
    "moons": ("moons/moons_paper_processed.npz",),
    "moons_fresh": (),
    "mnist": ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"),
    "mnist_normed": ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"),
    "onp": ("onp/OnlineNewsPopularity.csv",),
    "shuttle": ("shuttle/shuttle_all.csv.gz",),
    "shuttle_raw": ("shuttle/shuttle_all.csv.gz",),
    "reuters": ("reuters/reuters_r8_modapte.csv.gz",),
    "elec2": ("elec2/elec2_paper_processed.npz", "elec2/elec2.data.gz"),
    "elec2_40": ("elec2/elec2_paper_processed.npz", "elec2/elec2.data.gz"),
    "elec2_rows": ("elec2/elec2.data.gz",),
    "elec2_rows_40": ("elec2/elec2.data.gz",),
    "house": ("house/raw_sales.csv.gz",),
    "house_2018": ("house/raw_sales.csv.gz",),
    "appliance": ("energy/energydata_complete.zip",),
    "m5_hobbies": ("m5/calendar.csv", "m5/sales_train_evaluation.csv"),
    "m5_household": ("m5/calendar.csv", "m5/sales_train_evaluation.csv"),
}


def find_files(folder: Path, name: str) -> list[Path]:
    """The files of a set. Raises NotFound, which says what is missing and where to get it."""
    found = [folder / file for file in FILES[name]]
    for path, file in zip(found, FILES[name], strict=True):
        if not path.is_file():
            raise NotFound(
                f"There is no {path}: name the folder that holds {file} by --data or MORROW_PAPER_DATA. "
                f"It comes from {ORIGINS[file]}."
            )
    return found
