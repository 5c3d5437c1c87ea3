"""Our method: a time-conditioned network, pre-trained on all snapshots, then bent by the GI loss on the newest."""

from contracts.task import Training
from trainer.methods.plans import Phase, Plan


def gi(training: Training) -> Plan:
    """Pre-train on all rows, then fine-tune on the newest k windows, oldest of them first (the paper's algorithm 1)."""
    pretrain = Phase(
        name="pretrain",
        rows="all",
        budget="all",
        epochs=training.pretrain_epochs,
        rate=training.pretrain_rate,
        objective="gi" if training.gi_pretrain else "erm",
    )
    finetune = [
        Phase(
            name=f"finetune_{newest}",
            rows=newest,
            budget=newest,
            epochs=training.finetune_epochs,
            rate=training.finetune_rate,
            objective="gi",
            watches_next=training.early_stopping,
        )
        for newest in range(training.finetune_windows, 0, -1)
    ]
    return Plan(is_timed=True, phases=tuple(phase for phase in (pretrain, *finetune) if phase.epochs))
