"""A task: one prediction problem, as people write it in TOML or JSON.

Every revision of a task's spec is a *schema*. A *recipe* is everything that two fits must share to be compared in one
error matrix.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from contracts.clock import MICROSECOND, Clock
from contracts.durations import CENTURY
from contracts.shown import MAX_SHOWN
from contracts.spec.boosting import Boosting
from contracts.spec.prediction_log import PredictionLog
from contracts.spec.spec_values import RESERVED_NAMES, Duration, Length, Name, Spec, Text, suggest_name

MAX_FEATURES = 512
Kind = Literal["number", "integer", "boolean", "category"]
# Other words for kinds, as other tools use them.
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("float", "double", "numeric", "real", "decimal", "float64"), "number"),
    **dict.fromkeys(("int", "int64", "long", "count", "whole"), "integer"),
    **dict.fromkeys(("bool", "flag", "binary"), "boolean"),
    **dict.fromkeys(("str", "string", "text", "categorical", "factor", "enum", "object", "label"), "category"),
}
Calendar = Literal["day", "week", "year"]
DeltaMode = Literal["random", "adversarial", "warm", "grid"]
RegressionLoss = Literal["gaussian", "absolute"]
LabelForm = Literal["plain", "log"]
NumberForm = Literal["plain", "quantile", "piecewise"]
# What a member of a cohort reads of numbers: their values alone, or also their differences from the level of a time.
View = Literal["plain", "last_day", "last_week", "last_window"]
_PLAIN_VIEWS: tuple[View, ...] = ("plain",)
# The methods that train a network: ours, the paper's rivals, and its ablations of ours.
Method = Literal[
    "gi", "baseline", "last_window", "inc_finetune", "base_time", "inc_finetune_time", "grad_reg", "time_perturb",
]  # fmt: skip
Rival = Literal[Method, "gbdt", "extrapolated_linear"]
Expert = Literal["gi", "gbdt"]
_EXPERTS: dict[str, JsonValue] = {  # "gi" alone, or followed by "gbdt"
    "type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": True,
    "prefixItems": [{"type": "string", "enum": ["gi"]}], "items": {"type": "string", "enum": ["gi", "gbdt"]},
}  # fmt: skip
Experts = Annotated[tuple[Expert, ...], WithJsonSchema(_EXPERTS)]

# If a recipe sets no batch size, it is the power of two within these bounds that gives an epoch about this many steps.
# With fewer steps a network hardly learns, and below some rows a step gets no cheaper (docs/decisions/0013).
_STEPS_PER_EPOCH = 16
_FEWEST_ROWS, _MOST_ROWS = 32, 1024


def _check_kind(given: object) -> object:
    """The kind unchanged. Raises ValueError for an unknown text, with the kind that it probably means."""
    if not isinstance(given, str) or given in get_args(Kind):
        return given
    meant = _KINDS.get(given.lower()) or (given.lower() if given.lower() in get_args(Kind) else None)
    remedy = f'write kind = "{meant}"' if meant else f"a kind is one of {', '.join(get_args(Kind))}"
    raise ValueError(f"is {given[:MAX_SHOWN]!r}, which is no kind of feature: {remedy}")


class Feature(Spec):
    """One input. Only an `optional` feature may be absent or null; both mean missing."""

    name: Name = Field(description="its key in events and requests")
    kind: Annotated[Kind, BeforeValidator(_check_kind)] = Field(
        description="the type of its values: a float, a whole number up to ±2^53, true or false, or one of some texts"
    )
    optional: bool = Field(False, description="whether it may be absent or null")


def is_numeric(kind: str) -> bool:
    """Whether values of a feature of this kind are stored as numbers."""
    return kind != "category"


_BOUNDS = {"minimum", "maximum"}


class Target(Spec):
    """What is predicted. Classes may be listed; if they are not, each fit takes those that it has seen."""

    name: Name = Field(description="its name for people; an event holds its value as `label`")
    kind: Literal["classification", "regression"] = Field(description="whether labels are classes or numbers")
    classes: tuple[Text, ...] | None = Field(
        None, description="the only labels that are accepted, at least two; if unset, those that a fit has seen"
    )
    minimum: float | None = Field(
        None,
        description="of a regression: the least label that is accepted, and the least value that answers and intervals "
        "have, such as 0 for counts",
    )
    maximum: float | None = Field(None, description="of a regression: the largest, likewise")

    @model_serializer(mode="wrap")
    def _leave_out_unset_bounds(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Processes of the previous release, which know no bounds, read every spec that sets none."""
        return {name: value for name, value in write(self).items() if value is not None or name not in _BOUNDS}

    @model_validator(mode="after")
    def _bounds_fit_the_kind(self) -> Self:
        if self.kind == "classification" and self.has_bounds:
            raise ValueError("minimum and maximum belong to a regression target only")
        if self.minimum is not None and self.maximum is not None and self.minimum >= self.maximum:
            raise ValueError(f"minimum {self.minimum:g} is not below maximum {self.maximum:g}")
        return self

    @property
    def has_bounds(self) -> bool:
        """Whether `minimum` or `maximum` is set."""
        return self.minimum is not None or self.maximum is not None

    def bound(self, value: float) -> float:
        """The value, or the bound that it is beyond."""
        if self.minimum is not None and value < self.minimum:
            return self.minimum
        return self.maximum if self.maximum is not None and value > self.maximum else value

    @model_validator(mode="after")
    def _classes_fit_the_kind(self) -> Self:
        if self.classes is not None:
            if self.kind == "regression":
                raise ValueError("classes belong to a classification target only")
            if len(set(self.classes)) < max(2, len(self.classes)):
                raise ValueError("classes are at least two and differ from each other")
        return self


class Guard(Spec):
    """The rule by which an age counts as validated (`trainer.evaluation.horizon` applies it)."""

    max_age: int = Field(4, ge=1, le=64, description="the longest horizon that can be validated, in windows")
    tolerance: float = Field(
        0.10, gt=0, le=10, description="allowed mean increase over the fresh error, as a share of it"
    )
    min_pairs: int = Field(3, ge=2, le=1000, description="target windows that an age must be compared on")
    max_error: float | None = Field(None, gt=0, description="absolute limit of the mean error at an age")
    min_rows: int = Field(100, ge=2, description="rows below which no model is fitted")
    rivals: tuple[Rival, ...] = Field(
        ("baseline", "last_window", "gbdt"),
        description="methods that the idle trainer fits for comparison and scores on the same rows; never served",
    )


class Training(Spec):
    """The recipe: network, objective and schedule of one fit. Times are in windows, rates are Adam's learning rates."""

    method: Method = Field("gi", description="how the network is trained: Gradient Interpolation, or another method")
    num_seeds: int = Field(4, ge=1, le=16, description="members of the released cohort, whose outputs are averaged")
    history: int | None = Field(None, ge=1, description="newest windows that a fit reads; if unset, all")
    calendar: tuple[Calendar, ...] = Field(
        ("day", "week", "year"), description="periods whose phase is an input, each as sine and cosine"
    )
    regression_loss: RegressionLoss = Field(
        "absolute",
        description="what a regression minimises: a Gaussian log-loss, whose answers are means, or absolute errors, "
        "whose answers are medians; the rival `gbdt` uses it too",
    )
    label_form: LabelForm = Field(
        "plain",
        description="what a regression learns: the labels themselves, or the logarithms of positive labels whose "
        "errors count in percent, such as prices (others count as the smallest usual one); answers are in the unit "
        "of labels either way, and medians if logarithms are learned; rivals use it too",
    )
    number_form: NumberForm = Field(
        "piecewise",
        description="how a network reads numbers: standardised; as their quantile among the values of its fit, which "
        "separates crowded values and limits extreme ones; or with a slope of its own for each piece of their range, "
        "which suits numbers such as the hour of a day; the rival `gbdt` needs none of them",
    )
    views: tuple[View, ...] = Field(
        _PLAIN_VIEWS,
        min_length=1,
        max_length=16,
        description="what the members of a cohort read of numbers, in turn: their values alone, or also the difference "
        "of each from its own mean over the last day, week or window before the row's window; differences suit "
        "numbers whose level wanders",
    )
    width: int = Field(64, ge=1, le=4096, description="units of a hidden layer")
    num_layers: int = Field(2, ge=1, le=8, description="hidden layers, each followed by a TReLU")
    num_trelu: int | None = Field(
        None, ge=0, description="how many of them, from the last backwards, are time-dependent; if unset, all"
    )
    embedding: int = Field(8, ge=1, le=256, description="numbers that represent one category")
    time_width: int = Field(8, ge=1, le=256, description="entries m of Time2Vec")
    time_linear: int = Field(1, ge=0, description="linear entries m_p of Time2Vec")
    trelu_width: int = Field(8, ge=1, le=256, description="hidden units of a TReLU's nets")
    batch_size: int | None = Field(
        None,
        ge=1,
        description=f"rows of a minibatch; if unset, the power of two from {_FEWEST_ROWS} to {_MOST_ROWS:,} that gives "
        f"an epoch of the fit's rows {_STEPS_PER_EPOCH} to {2 * _STEPS_PER_EPOCH} steps",
    )
    rows_per_epoch: int = Field(65_536, ge=1, description="cap on the rows of one epoch; each epoch draws its own")
    pretrain_epochs: int = Field(10, ge=0, description="first epochs, on all windows together")
    pretrain_steps: int | None = Field(
        None,
        ge=1,
        description="most steps of pre-training: after its epochs it goes on by rounds of as many, while each lowers "
        "the loss on rows held out by 5 percent or more; if unset, there is one round, and no row is held out",
    )
    pretrain_rate: float = Field(3e-3, gt=0, description="learning rate of pre-training")
    finetune_windows: int = Field(2, ge=0, description="number k of newest windows to fine-tune on, in order")
    finetune_epochs: int = Field(3, ge=0, description="epochs on each of them")
    finetune_rate: float = Field(5e-4, gt=0, description="learning rate of fine-tuning")
    early_stopping: bool = Field(
        False, description="whether fine-tuning on a window keeps the epoch with the lowest loss on the next window"
    )
    weight_decay: float = Field(1e-4, ge=0, description="decoupled (AdamW)")
    averaged: float = Field(
        0.5, ge=0, le=1, description="share of a phase, at its end, over which weights are averaged"
    )
    gi_weight: float = Field(
        0.5, ge=0, description="λ, the weight of the interpolated loss, or of an ablation's substitute for it"
    )
    gi_pretrain: bool = Field(False, description="whether GI also shapes the pre-training phase")
    delta_max: float = Field(2.0, gt=0, description="bound of δ, in windows")
    delta_mode: DeltaMode = Field(
        "warm",
        description="how δ is found: drawn, by ascent from a draw, by ascent from the last δ, or as the best of a grid",
    )
    delta_steps: int = Field(2, ge=1, le=64, description="ascent steps of δ, or points of its grid")
    delta_rate: float = Field(0.5, gt=0, description="length of one ascent step, as a share of delta_max")
    delta_rows: int = Field(128, ge=1, description="rows of a minibatch on which δ is searched; at most all")
    experts: Literal["auto"] | Experts = Field(
        "auto",
        description="whose answers are averaged: those of the network alone, `gi`; always with those of LightGBM, "
        "`gbdt`, each weighed by its errors on earlier windows; or `auto`: the average once it has proved better on "
        "earlier windows, else the network alone",
    )
    boosting: Boosting = Field(
        Boosting(), description="settings of LightGBM, as a rival and as an expert; the network does not read them"
    )
    tune: bool | Literal["quick"] = Field(
        False,
        description="whether the trainer chooses a better recipe, once, by rolling origins within the rows known at "
        "the first cycle that has enough windows: by a search that starts from this recipe, or `quick`, among this "
        "recipe and a few others in about the time of four fits",
    )
    tune_seconds: float = Field(
        900, gt=0, description="seconds that it may try recipes: at most half of a cycle's time limit"
    )
    tune_trials: int = Field(64, ge=1, le=1000, description="the most recipes that it tries")

    @model_serializer(mode="wrap")
    def _leave_out_plain_views(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Recipes are older than views: digests and processes of the previous release meet none that are plain."""
        return {name: value for name, value in write(self).items() if name != "views" or self.views != _PLAIN_VIEWS}

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.time_linear > self.time_width:
            raise ValueError("time_linear is at most time_width")
        if self.experts != "auto" and (self.experts[:1] != ("gi",) or len(set(self.experts)) < len(self.experts)):
            raise ValueError('experts is "auto", ["gi"] or ["gi", "gbdt"]')
        if self.num_trelu is not None and self.num_trelu > self.num_layers:
            raise ValueError("num_trelu is at most num_layers")
        if self.pretrain_epochs == 0 and (self.finetune_epochs == 0 or self.finetune_windows == 0):
            raise ValueError("a recipe trains for at least one epoch")
        return self

    @property
    def can_mix(self) -> bool:
        """Whether LightGBM is fitted next to the network."""
        return self.experts != ("gi",)

    def rows_per_minibatch(self, num_rows: int) -> int:
        """The batch size of a fit on `num_rows` rows."""
        if self.batch_size is not None:
            return self.batch_size
        share = max(1, min(num_rows, self.rows_per_epoch) // _STEPS_PER_EPOCH)
        return min(max(_FEWEST_ROWS, 1 << share.bit_length() - 1), _MOST_ROWS)


# Settings that stored specs of older releases may lack, and the values that these releases used. Digests leave them out
# at these values, because recipes are older than these settings.
_UNTOLD: dict[str, object] = {"label_form": "plain", "number_form": "plain", "experts": ["gi"], "pretrain_steps": None}
_FORMER = {"regression_loss": "gaussian"} | _UNTOLD


def read_training(stored: Mapping[str, Any]) -> Training:
    """A stored recipe as it was meant. Raises ValueError if it cannot be read."""
    return Training.model_validate(_FORMER | dict(stored))


class Task(Spec):
    """One prediction problem: its features, target, window, guard and training settings. Durations are ISO 8601."""

    name: Name = Field(
        description="its name in paths, metrics and MLflow: ASCII letters, digits and underscores, a letter first; "
        "words of paths and commands, such as `predict`, are free, because a task is named below `/tasks/` and in "
        "`task=` only; `morrow task rename` changes it"
    )
    features: tuple[Feature, ...] = Field(min_length=1, max_length=MAX_FEATURES, description="the inputs")
    target: Target = Field(description="what is predicted")
    window: Duration = Field(description="how often the model is retrained; the unit of ages")
    offset: Length = Field(timedelta(0), description="offset of window boundaries from the Unix epoch in UTC")
    label_delay: Length = Field(
        timedelta(0),
        ge=timedelta(0),
        le=CENTURY,
        description="how long after `at` a label is known, unless an event says when",
    )
    span: Duration | None = Field(None, description="unit of model time; if unset, 26 windows")
    schedule: Literal["window", "manual"] = Field(
        "window", description="whether a cycle runs at every window's end, or only on request"
    )
    guard: Guard = Field(Guard(), description="the rule by which an age counts as validated")
    training: Training = Field(Training(), description="the recipe")
    log: PredictionLog = Field(PredictionLog(), description="which answers are logged")

    @model_serializer(mode="wrap")
    def _leave_out_default_log(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Processes of the previous release, which know no log, read every spec that sets none."""
        return {name: value for name, value in write(self).items() if name != "log" or self.log != PredictionLog()}

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        names = [feature.name for feature in self.features]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"the names of features must differ; given twice: {', '.join(sorted(repeated))}")
        if taken := RESERVED_NAMES.intersection(names):
            words = ", ".join(f"{name} (name it {suggest_name(name)})" for name in sorted(taken))
            raise ValueError(f"feature names that are parameters of /predict are refused: {words}")
        if self.target.name in names:
            raise ValueError(
                f"the target is not one of the features: {self.target.name} is both, so give one of them another name"
            )
        return self

    @cached_property
    def clock(self) -> Clock:
        window = self.window // MICROSECOND
        span = self.span // MICROSECOND if self.span else 26 * window
        return Clock(window=window, offset=self.offset // MICROSECOND % window, span=span)

    @cached_property
    def numbers(self) -> tuple[Feature, ...]:
        """Features that are stored as numbers, in the order of the array. Booleans are 1 and 0."""
        return tuple(feature for feature in self.features if is_numeric(feature.kind))

    @cached_property
    def categories(self) -> tuple[Feature, ...]:
        """Category features in the order of the stored array."""
        return tuple(feature for feature in self.features if not is_numeric(feature.kind))

    def with_training(self, training: Training) -> "Task":
        """The same problem with another recipe."""
        return self.model_copy(update={"training": training})

    @property
    def unbounded(self) -> "Task":
        """The same problem without bounds of its target, which change neither the form of rows nor a fit."""
        return self.model_copy(update={"target": self.target.model_copy(update=dict.fromkeys(_BOUNDS))})

    @property
    def is_classification(self) -> bool:
        return self.target.kind == "classification"

    @property
    def error_name(self) -> str:
        """The error that the matrix, the guard and `expected_error` report: never negative, smaller is better."""
        return "log_loss" if self.is_classification else "mean_absolute_error"

    @property
    def row_schema(self) -> str:
        """Digest of the form of a stored row; revisions with different digests cannot share rows."""
        rows = self.unbounded.model_dump_json(include={"features", "target"})
        return hashlib.sha256(rows.encode()).hexdigest()[:16]

    @property
    def recipe(self) -> str:
        """Digest of method, hyper-parameters and schema: fits with the same digest share one error matrix."""
        spec = json.loads(self.unbounded.model_dump_json(exclude={"name", "schedule", "guard", "log"}))
        spec["training"] = {
            name: value for name, value in spec["training"].items() if (name, value) not in _UNTOLD.items()
        }
        return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def read_task(stored: object) -> Task:
    """The task of a stored spec as it was meant. Raises ValueError if it cannot be read."""
    if isinstance(stored, Mapping) and isinstance(training := stored.get("training", {}), Mapping):
        stored = {**stored, "training": _FORMER | dict(training)}
    return Task.model_validate(stored)
