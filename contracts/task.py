"""A task: one prediction problem, as people write it down in TOML or JSON.

Every revision of a task's spec is a *schema*; a *recipe* is what two fits must share to stand in one error matrix.
"""

import hashlib
import json
from datetime import timedelta
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from contracts.clock import MICROSECOND, Clock
from contracts.spec import CENTURY, Duration, Length, Name, Spec, Text

RESERVED_NAMES = frozenset({"at", "task", "coverage", "rate"})

Calendar = Literal["day", "week", "year"]
DeltaMode = Literal["random", "adversarial", "warm", "grid"]
RegressionLoss = Literal["gaussian", "absolute"]
LabelForm = Literal["plain", "log"]
NumberForm = Literal["plain", "quantile"]
# What trains a network: our method, the paper's rivals and its ablations of ours.
Method = Literal[
    "gi",
    "baseline",
    "last_window",
    "inc_finetune",
    "base_time",
    "inc_finetune_time",
    "grad_reg",
    "time_perturb",
]
Rival = Literal[Method, "gbdt", "extrapolated_linear"]

# Where a recipe says nothing, a minibatch is the power of two within these bounds that gives an epoch about so many
# steps: with fewer a network hardly learns, and below some rows a step costs no less (docs/decisions/0013).
_STEPS_PER_EPOCH = 16
_FEWEST_ROWS, _MOST_ROWS = 32, 1024


class Feature(Spec):
    """One input. Only an `optional` feature may be absent or null; both mean missing."""

    name: Name = Field(description="as events and questions call it")
    kind: Literal["number", "category"] = Field(description="what its values are: a float, or one of some texts")
    optional: bool = Field(False, description="whether it may be absent or null")


class Target(Spec):
    """What is predicted. Classes may be listed; where they are not, each fit takes those that it has seen."""

    name: Name = Field(description="what people call it; an event holds its value as `label`")
    kind: Literal["classification", "regression"] = Field(description="whether labels are classes or numbers")
    classes: tuple[Text, ...] | None = Field(
        None, description="the only labels that are taken, two at least; where unset, those that a fit has seen"
    )

    @model_validator(mode="after")
    def _classes_fit_the_kind(self) -> Self:
        if self.classes is not None:
            if self.kind == "regression":
                raise ValueError("classes belong to a classification target only")
            if len(set(self.classes)) < max(2, len(self.classes)):
                raise ValueError("classes are at least two and differ from each other")
        return self


class Guard(Spec):
    """When an age counts as validated: the rule is in `trainer.evaluation.horizon`."""

    max_age: int = Field(4, ge=1, le=64, description="longest horizon that may be validated, in windows")
    tolerance: float = Field(
        0.10, gt=0, le=10, description="allowed mean increase over the fresh error, as a share of it"
    )
    min_pairs: int = Field(3, ge=2, le=1000, description="target windows that an age must be compared on")
    max_error: float | None = Field(None, gt=0, description="absolute limit of the mean error at an age")
    min_rows: int = Field(100, ge=2, description="rows below which no model is fitted")
    rivals: tuple[Rival, ...] = Field(
        ("baseline", "last_window", "gbdt"),
        description="methods that are fitted beside ours when the trainer is idle, and scored on the same rows; "
        "never served",
    )


class Boosting(Spec):
    """What LightGBM is set to where it is a rival; each fit finds its number of rounds itself."""

    learning_rate: float = Field(0.1, ge=0.01, le=1, description="weight of one tree")
    num_leaves: int = Field(31, ge=2, le=1024, description="most leaves of a tree")
    min_rows: int = Field(20, ge=1, description="least rows of a leaf")
    feature_share: float = Field(1.0, gt=0, le=1, description="share of the columns that a tree is drawn")
    half_life: float = Field(13.0, gt=0, description="windows before the origin at which a row weighs half")
    reads_time: bool = Field(True, description="whether it reads model time")
    reads_calendar: bool = Field(True, description="whether it reads the calendar's phases")


class Training(Spec):
    """The recipe: network, objective and schedule of one fit. Times are in windows, rates are Adam's learning rates."""

    method: Method = Field("gi", description="what trains the network: Gradient Interpolation, or another one's way")
    num_seeds: int = Field(4, ge=1, le=16, description="members of the released cohort, whose outputs are averaged")
    history: int | None = Field(None, ge=1, description="newest windows that a fit reads; all where unset")
    calendar: tuple[Calendar, ...] = Field(
        ("day", "week", "year"), description="periods whose phase is an input, each as sine and cosine"
    )
    regression_loss: RegressionLoss = Field(
        "gaussian",
        description="what a regression minimises: a Gaussian log-loss, whose answers are means, or absolute errors, "
        "whose answers are medians; the rival `gbdt` goes by it too",
    )
    label_form: LabelForm = Field(
        "plain",
        description="what a regression learns: labels as they are, or the logarithms of labels that are positive and "
        "differ in proportion, as prices do (others count as the smallest usual one); answers are in the label's unit "
        "either way, those of logarithms are medians; rivals go by it too",
    )
    number_form: NumberForm = Field(
        "plain",
        description="how a network reads numbers: standardised, or by their place among the values of its fit, which "
        "tells crowded values apart and lets far ones be; the rival `gbdt` needs neither",
    )
    width: int = Field(64, ge=1, le=4096, description="units of a hidden layer")
    num_layers: int = Field(2, ge=1, le=8, description="hidden layers, each followed by a TReLU")
    num_trelu: int | None = Field(
        None, ge=0, description="how many of them, from the last, are time-dependent; all where unset"
    )
    embedding: int = Field(8, ge=1, le=256, description="numbers that stand for one category")
    time_width: int = Field(8, ge=1, le=256, description="entries m of Time2Vec")
    time_linear: int = Field(1, ge=0, description="linear entries m_p of Time2Vec")
    trelu_width: int = Field(8, ge=1, le=256, description="hidden units of a TReLU's nets")
    batch_size: int | None = Field(
        None,
        ge=1,
        description=f"rows of a minibatch; where unset, by the rows of the fit: the power of two from {_FEWEST_ROWS} "
        f"to {_MOST_ROWS:,} that gives an epoch {_STEPS_PER_EPOCH} to {2 * _STEPS_PER_EPOCH} steps",
    )
    rows_per_epoch: int = Field(65_536, ge=1, description="cap on the rows of one epoch; drawn afresh each epoch")
    pretrain_epochs: int = Field(10, ge=0, description="epochs on all windows together, which come first")
    pretrain_rate: float = Field(3e-3, gt=0, description="learning rate of these")
    finetune_windows: int = Field(2, ge=0, description="newest windows k that are fine-tuned on, in order")
    finetune_epochs: int = Field(3, ge=0, description="epochs on each of them")
    finetune_rate: float = Field(5e-4, gt=0, description="learning rate of these")
    early_stopping: bool = Field(
        False, description="whether fine-tuning on a window keeps the epoch with the lowest loss on the next window"
    )
    weight_decay: float = Field(1e-4, ge=0, description="decoupled (AdamW)")
    averaged: float = Field(0.5, ge=0, le=1, description="share of a phase, at its end, whose weights are averaged")
    gi_weight: float = Field(
        0.5, ge=0, description="λ, the weight of the interpolated loss, or of what an ablation has in its place"
    )
    gi_pretrain: bool = Field(False, description="whether GI also shapes the pre-training phase")
    delta_max: float = Field(2.0, gt=0, description="bound of δ, in windows")
    delta_mode: DeltaMode = Field(
        "warm",
        description="how δ is found: drawn, by ascent from a draw, by ascent from the last δ, or as the best of a grid",
    )
    delta_steps: int = Field(2, ge=1, le=64, description="ascent steps of δ, or points of its grid")
    delta_rate: float = Field(0.5, gt=0, description="length of one ascent step, as a share of delta_max")
    delta_rows: int = Field(128, ge=1, description="rows of a minibatch that δ is looked for on; all at most")
    boosting: Boosting = Field(Boosting(), description="of the rival `gbdt`; our own fits do not read it")
    tune: bool = Field(
        False,
        description="whether the trainer chooses a better recipe, once, by rolling origins inside the rows known at "
        "the first cycle that has enough windows; this one is then where it starts from",
    )
    tune_seconds: float = Field(900, gt=0, description="how long it may try recipes: at most half a cycle's time limit")
    tune_trials: int = Field(64, ge=1, le=1000, description="most recipes that it tries")

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.time_linear > self.time_width:
            raise ValueError("time_linear is at most time_width")
        if self.num_trelu is not None and self.num_trelu > self.num_layers:
            raise ValueError("num_trelu is at most num_layers")
        if self.pretrain_epochs == 0 and (self.finetune_epochs == 0 or self.finetune_windows == 0):
            raise ValueError("a recipe trains for at least one epoch")
        return self

    def rows_per_minibatch(self, num_rows: int) -> int:
        """What `batch_size` comes to in a fit on so many rows."""
        if self.batch_size is not None:
            return self.batch_size
        share = max(1, min(num_rows, self.rows_per_epoch) // _STEPS_PER_EPOCH)
        return min(max(_FEWEST_ROWS, 1 << share.bit_length() - 1), _MOST_ROWS)


# Settings that recipes did not have at first, with what they meant all the same: their digests stay what they were.
_FORMER = {"label_form": "plain", "number_form": "plain"}


class Task(Spec):
    """One prediction problem: its features, target, window, guard and training settings. Durations are ISO 8601."""

    name: Name = Field(description="in paths, metrics and MLflow; it never changes")
    features: tuple[Feature, ...] = Field(min_length=1, max_length=512, description="the inputs")
    target: Target = Field(description="what is predicted")
    window: Duration = Field(description="how often the model is retrained, and the unit of ages")
    offset: Length = Field(timedelta(0), description="of window boundaries, from the Unix epoch in UTC")
    label_delay: Length = Field(
        timedelta(0),
        ge=timedelta(0),
        le=CENTURY,
        description="how long after `at` a label is known, where no event says",
    )
    span: Duration | None = Field(None, description="unit of model time; 26 windows where unset")
    schedule: Literal["window", "manual"] = Field(
        "window", description="whether a cycle runs at every window's end, or only when it is asked for"
    )
    guard: Guard = Field(Guard(), description="when an age counts as validated")
    training: Training = Field(Training(), description="the recipe")

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        names = [feature.name for feature in self.features]
        if len(set(names)) < len(names):
            raise ValueError("feature names differ from each other")
        if taken := RESERVED_NAMES.intersection(names):
            raise ValueError(f"feature names that are parameters of /predict are refused: {', '.join(sorted(taken))}")
        if self.target.name in names:
            raise ValueError("the target is not one of the features")
        return self

    @cached_property
    def clock(self) -> Clock:
        window = self.window // MICROSECOND
        span = self.span // MICROSECOND if self.span else 26 * window
        return Clock(window=window, offset=self.offset // MICROSECOND % window, span=span)

    @cached_property
    def numbers(self) -> tuple[Feature, ...]:
        """Number features in the order of the stored array."""
        return tuple(feature for feature in self.features if feature.kind == "number")

    @cached_property
    def categories(self) -> tuple[Feature, ...]:
        """Category features in the order of the stored array."""
        return tuple(feature for feature in self.features if feature.kind == "category")

    def with_training(self, training: Training) -> "Task":
        """The same problem with another recipe."""
        return self.model_copy(update={"training": training})

    @property
    def is_classification(self) -> bool:
        return self.target.kind == "classification"

    @property
    def error_name(self) -> str:
        """What the error matrix, the guard and `expected_error` measure: never negative, smaller is better."""
        return "log_loss" if self.is_classification else "mean_absolute_error"

    @property
    def row_schema(self) -> str:
        """Digest of what a stored row looks like; a revision with another one cannot share rows with this."""
        rows = self.model_dump_json(include={"features", "target"})
        return hashlib.sha256(rows.encode()).hexdigest()[:16]

    @property
    def recipe(self) -> str:
        """Digest of method, hyper-parameters and schema: fits that share it stand in one error matrix."""
        spec = json.loads(self.model_dump_json(exclude={"name", "schedule", "guard"}))
        spec["training"] = {
            name: value for name, value in spec["training"].items() if (name, value) not in _FORMER.items()
        }
        return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
