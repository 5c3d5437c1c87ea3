"""The rival that follows time by order alone: features only, one snapshot after the other (the paper's IncFinetune)."""

from contracts.task import Training
from trainer.methods.plans import Oldest, Phase, Plan


def inc_finetune(training: Training) -> Plan:
    """Pre-train on the oldest window, then fine-tune on each later one in order, at the lower rate.

    A recipe without pre-training fine-tunes on the oldest window too.
    """
    is_pretrained = training.pretrain_epochs > 0
    oldest = Phase(
        name="pretrain" if is_pretrained else "finetune_1",
        rows=Oldest(1),
        budget=Oldest(1),
        epochs=training.pretrain_epochs if is_pretrained else training.finetune_epochs,
        rate=training.pretrain_rate if is_pretrained else training.finetune_rate,
        objective="erm",
    )
    later = Phase(
        name="finetune",
        rows="later",
        budget="later",
        epochs=training.finetune_epochs,
        rate=training.finetune_rate,
        objective="erm",
        watches_next=training.early_stopping,
    )
    return Plan(is_timed=False, phases=(oldest, later) if training.finetune_epochs else (oldest,))
