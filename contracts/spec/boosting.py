"""The settings of LightGBM, as a rival and as an expert."""

from pydantic import Field

from contracts.spec.spec_values import Spec


class Boosting(Spec):
    """The settings of LightGBM as a rival; each fit finds its number of rounds itself."""

    learning_rate: float = Field(0.1, ge=0.01, le=1, description="weight of one tree")
    num_leaves: int = Field(31, ge=2, le=1024, description="most leaves of a tree")
    min_rows: int = Field(20, ge=1, description="fewest rows of a leaf")
    feature_share: float = Field(1.0, gt=0, le=1, description="share of the columns that a tree is drawn")
    half_life: float = Field(13.0, gt=0, description="windows before the origin at which a row weighs half")
    reads_time: bool = Field(True, description="whether it reads model time")
    reads_calendar: bool = Field(True, description="whether it reads the calendar's phases")
