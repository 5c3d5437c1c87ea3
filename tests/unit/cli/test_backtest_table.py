"""The output of `morrow backtest` fits a terminal, whatever the unit of the errors."""

import pytest
from rich.console import Console

from cli.reports.backtest import ages_table
from tests.unit.service.validation.row_rules import a_task
from trainer.evaluation.horizon import AgeVerdict


@pytest.mark.parametrize("unit", [1.0, 35.0, 3500.0])
def test_the_ages_fit_80_columns_whatever_the_unit(unit: float) -> None:
    mean, low, high, limit, naive = 0.2491 * unit, 0.0247 * unit, 0.3398 * unit, 0.4 * unit, 0.6428 * unit
    growth, increase, allowed = 0.0132 * unit, 0.0323 * unit, 0.0246 * unit
    ages = (
        AgeVerdict(0, 15, mean, low, high, limit, naive, 15, None, None, None),
        AgeVerdict(1, 13, mean, low, high, limit, naive, 13, increase, allowed, "the error may grow", growth),
    )
    console = Console(width=80)
    with console.capture() as shown:
        console.print(ages_table(a_task(), ages))
    assert "allowed  valid" in shown.get()
    assert shown.get().count("…") == len(ages), "one in each band, and none where a figure is cut short"
