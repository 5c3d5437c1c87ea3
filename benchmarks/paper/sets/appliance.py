"""Appliance: the energy that a house's appliances take in ten minutes, in tens of Wh, as DRAIN publishes it.

Nine domains of 15 days, of which the first begins a few hours late and the last, the test, is three days longer. The
features are those of the service's own stream: rooms, outside and weather.
"""

from pathlib import Path

from benchmarks.datasets import load_appliance, read_task
from benchmarks.paper.sets.cut import DAY, PaperSet, even_edges
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, frame_rows, with_domains
from cli.demo.flights import LABEL
from contracts.clock import parse_moment

_NUM_DOMAINS = 9
_WINDOW = 15 * DAY
_FIRST, _END = parse_moment("2016-01-11T00:00:00Z"), parse_moment("2016-05-28T00:00:00Z")
_UNIT = 10


def load_appliance_readings(folder: Path) -> PaperSet:
    """17,178 readings of eight domains, and 2,557 of the ninth. Raises NotFound."""
    find_files(folder, "appliance")
    frame = load_appliance(folder)
    frame[LABEL] /= _UNIT
    task = with_domains(read_task("appliance"), _WINDOW, _NUM_DOMAINS)
    return PaperSet(
        name="appliance",
        title="Appliance",
        contents=Tabular(task, frame_rows(task, frame)),
        edges=(*even_edges(_FIRST, _WINDOW, _NUM_DOMAINS)[:-1], _END),
        clock=task.clock,
        test_origin=_NUM_DOMAINS - 1,
        files=FILES["appliance"],
        calendars=("day", "week"),
    )
