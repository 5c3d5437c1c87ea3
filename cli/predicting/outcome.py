"""What `morrow predict` says at its end: how many rows are answered, by which versions, and why others are not."""

from rich.console import Console

from cli.predicting.predictor import Predicted
from contracts.shown import say_count

NUM_REASONS_SHOWN = 10


def describe_predicted(predicted: Predicted) -> dict[str, object]:
    """The facts, for programs."""
    return {
        "num_rows": predicted.num_rows,
        "num_before": predicted.num_before,
        "answered": predicted.num_answered,
        "refused": predicted.num_rows - predicted.num_answered,
        "without_expected_error": predicted.num_unpromised,
        "unseen": dict(predicted.unseen),
        "seconds": round(predicted.seconds, 3),
        "answers": str(predicted.answers),
        "rejects": None if predicted.rejects is None else str(predicted.rejects),
        "versions": list(predicted.versions),
        "notes": list(predicted.notes),
        "reasons": [
            {"field": one.field, "reason": one.reason, "count": one.count, "example": one.example, "place": one.place}
            for one in predicted.reasons
        ],
    }


def print_predicted(predicted: Predicted, again: str | None = None) -> None:
    """Print the same for people; `again` is the command that asks about the refused rows once more."""
    console = Console(highlight=False, soft_wrap=True)
    answered, refused = predicted.num_answered, predicted.num_rows - predicted.num_answered
    by = f" by version {' and '.join(predicted.versions)}" if predicted.versions else ""
    console.print(f"{say_count(answered, 'row')} answered{by}, {refused:,} refused, in {predicted.seconds:.1f} s.")
    if predicted.num_unpromised:
        have = "has" if predicted.num_unpromised == 1 else "have"
        console.print(
            f"{say_count(predicted.num_unpromised, 'answer')} {have} no expected error: the version has "
            "learned from rows of these moments.",
            markup=False,
        )
    for feature, count in predicted.unseen.items():
        have = "has" if count == 1 else "have"
        console.print(
            f"{say_count(count, 'row')} {have} a {feature} that the version's fit has hardly seen: `unseen` names it "
            "in each answer.",
            markup=False,
        )
    for reason in predicted.reasons[:NUM_REASONS_SHOWN]:
        console.print(reason.describe(), markup=False, style="red")
    if len(predicted.reasons) > NUM_REASONS_SHOWN:
        console.print(f"… and {len(predicted.reasons) - NUM_REASONS_SHOWN} other reasons.", style="red")
    console.print(f"The answers are in {predicted.answers}.", markup=False)
    if predicted.rejects is not None:
        console.print(f"The refused rows are in {predicted.rejects}, with the reasons.", markup=False)
        if any(reason.names_option for reason in predicted.reasons):
            console.print("Add the option that a reason names, and --replace, to the same command to answer them too.")
        elif again is not None:
            console.print(f"Put them right, or wait for a newer version, and ask again: {again}", markup=False)
