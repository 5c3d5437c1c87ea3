"""Online News Popularity: is an article shared more than 1,400 times? Six domains of four months.

The file gives an article's age in days on the day the file was made, 8 January 2015. It is not among our files: this
code follows the published cut and has read no row of it.
"""

from pathlib import Path

import numpy as np

from benchmarks.paper.sets.cut import DAY, PaperSet
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, event_rows, numbers_task
from contracts.clock import parse_moment

_MADE = parse_moment("2015-01-08T00:00:00Z")
# Ages in days at which domains begin and end, old to new; the first domain holds everything older than 600 days.
_AGES = (732, 600, 480, 360, 240, 120, 0)
_WINDOW = 120 * DAY
_MANY = 1400
_NOT_FEATURES = ["url", "timedelta", "shares"]


def load_onp(folder: Path) -> PaperSet:
    """The 58 numbers of each article. Raises NotFound."""
    import pandas as pd

    (path,) = find_files(folder, "onp")
    frame = pd.read_csv(path, skipinitialspace=True)
    features = frame.columns.drop(_NOT_FEATURES)
    num_domains = len(_AGES) - 1
    task = numbers_task("onp", list(features), ["few", "many"], _WINDOW, num_domains)
    at = _MADE - frame["timedelta"].to_numpy(np.int64) * DAY
    labels = np.where(frame["shares"] > _MANY, "many", "few")
    return PaperSet(
        name="onp",
        title="Online News Popularity",
        contents=Tabular(task, event_rows(task, at, frame[features].to_numpy(np.float64), labels)),
        edges=tuple(_MADE - age * DAY for age in _AGES),
        clock=task.clock,
        test_origin=num_domains - 1,
        files=FILES["onp"],
    )
