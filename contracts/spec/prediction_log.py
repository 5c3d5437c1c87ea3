"""Which answers of a task are logged, with what, and for how long."""

from pydantic import Field

from contracts.spec.spec_values import Spec


class PredictionLog(Spec):
    """The log of a task's answers. It shapes no fit."""

    share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of the answers that are logged; their ids decide which, so all processes agree; 0 for none",
    )
    features: bool = Field(
        True, description="whether the features that were asked are logged too; without them, no label can be joined"
    )
    days: int = Field(
        30,
        ge=1,
        le=3650,
        description="days after which a logged answer is deleted, to the day in Coordinated Universal Time",
    )
