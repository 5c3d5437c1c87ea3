"""Which origins are fitted side by side changes none of their fits."""

from dataclasses import replace

import torch

from contracts.task import Training
from handbook.example import DAY, START, reading
from trainer.data.snapshot import Reading
from trainer.evaluation.origin_fits import Fit, fit_origins

QUICK = Training(num_seeds=2, calendar=(), width=4, num_layers=1, trelu_width=2, pretrain_epochs=1, finetune_epochs=1)
ORIGINS = [START + days * DAY for days in (2, 3, 9)]


def fits(known: Reading, origins: list[int]) -> dict[int, Fit]:
    found = fit_origins(known, origins, torch.device("cpu"), 64, lambda _epoch: None)
    return {fit.origin: fit for fit in found}


def test_origins_that_ask_for_other_minibatches_are_fitted_as_by_themselves() -> None:
    whole = reading(9)
    known = replace(whole, schema=replace(whole.schema, task=whole.schema.task.with_training(QUICK)))
    sizes = [QUICK.rows_per_minibatch(len(known.fit_rows(origin))) for origin in ORIGINS]
    assert sizes == [32, 32, 128]
    together = fits(known, ORIGINS)
    assert together[ORIGINS[0]].network is together[ORIGINS[1]].network is not together[ORIGINS[2]].network
    for origin in ORIGINS:
        alone, beside = fits(known, [origin])[origin], together[origin]
        for own, other in zip(alone.network.parameters(), beside.network.parameters(), strict=True):
            torch.testing.assert_close(own[[*alone.members]], other[[*beside.members]], rtol=0, atol=1e-6)
