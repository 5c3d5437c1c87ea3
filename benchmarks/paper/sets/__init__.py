"""The paper's sets, read from their files and cut as their provenance says.

    moons, moons_fresh         2-Moons: the paper's points, the same in every domain, and fresh ones
    mnist, mnist_normed        Rot-MNIST, of MNIST's test images; for convolutions alone, and with batch norms
    onp                        Online News Popularity (we lack the file)
    shuttle, shuttle_raw       by time in percent, the likelier reading of the paper, and by the file's own time
    reuters                    R8
    elec2, elec2_40            the published arrays, tested on domain 29 as in the paper or 40 as by its successors
    elec2_rows, elec2_rows_40  the same rows with their true calendar, as the service reads them
    house, house_2018          as the service reads them; tested on 2019 as in the paper or 2018 as in its code
    appliance                  as the service reads them
    m5_hobbies, m5_household   sales by item, store and day (we lack the files)

No loader learns anything from a row: scalers and vocabularies are learned by `PaperSet.split`, from known rows alone.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.paper.norms import NormedConvNetwork
from benchmarks.paper.sets.appliance import load_appliance_readings
from benchmarks.paper.sets.cut import PaperSet
from benchmarks.paper.sets.elec2 import load_elec2_arrays, load_elec2_rows
from benchmarks.paper.sets.house import load_house_sales
from benchmarks.paper.sets.images import load_mnist
from benchmarks.paper.sets.m5 import load_m5
from benchmarks.paper.sets.moons import draw_moons, load_moons
from benchmarks.paper.sets.onp import load_onp
from benchmarks.paper.sets.shuttle import load_shuttle, load_shuttle_raw
from benchmarks.paper.sets.texts import load_reuters

__all__ = ["SETS", "PaperSet"]

# Each raises NotFound if a file is missing.
SETS: dict[str, Callable[[Path], PaperSet]] = {
    "moons": load_moons,
    "moons_fresh": draw_moons,
    "mnist": load_mnist,
    "mnist_normed": partial(load_mnist, name="mnist_normed", title="Rot-MNIST, normed", build=NormedConvNetwork),
    "onp": load_onp,
    "shuttle": load_shuttle,
    "shuttle_raw": load_shuttle_raw,
    "reuters": load_reuters,
    "elec2": load_elec2_arrays,
    "elec2_40": partial(load_elec2_arrays, name="elec2_40", test_origin=40),
    "elec2_rows": load_elec2_rows,
    "elec2_rows_40": partial(load_elec2_rows, name="elec2_rows_40", test_origin=40),
    "house": load_house_sales,
    "house_2018": partial(load_house_sales, name="house_2018", title="House, 2018", test_year=2018),
    "appliance": load_appliance_readings,
    "m5_hobbies": partial(load_m5, name="m5_hobbies", title="M5-Hobbies", category="HOBBIES"),
    "m5_household": partial(load_m5, name="m5_household", title="M5-Household", category="HOUSEHOLD"),
}
