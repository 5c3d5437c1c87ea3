"""The task file that `morrow task infer` writes: TOML with a comment for each guess, and the commands that follow."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cli.inferring.guess import Guessed
from cli.inferring.kinds import Judged
from cli.inferring.profile import Profile
from contracts.shown import say_count
from contracts.spec.spec_values import suggest_name

_WIDTH = 118
# Share of the labels above which one value is their median.
_MOST_LABELS = 0.5
_EXPERTS = "the network's answers are averaged with LightGBM's where that has proved better"


@dataclass(frozen=True)
class Chosen:
    """Values that are no guesses: of keys of the task itself, and of its tables `guard` and `training`."""

    task: Mapping[str, object] = field(default_factory=dict)
    guard: Mapping[str, object] = field(default_factory=dict)
    training: Mapping[str, object] = field(default_factory=dict)


def _describe_ids(guessed: Guessed) -> str:
    if guessed.ids is not None:
        return f"Ids are in {guessed.ids}."
    composed = guessed.options.id_from
    return f"Ids are made of {' and '.join(composed)}." if composed else "Ids are digests of rows."


def write_task_file(
    guessed: Guessed,
    profile: Profile,
    source: str,
    import_command: str,
    *,
    by: str = "morrow task infer",
    chosen: Chosen = Chosen(),
) -> str:
    """The text of the file. `source` is what it was guessed from, and `by` what guessed it."""
    lines = [
        _remark(f"Guessed by `{by}` from {source}: check it, and change what is wrong."),
        _remark(_describe_rows(guessed, profile)),
        _remark(_describe_ids(guessed)),
        *(_remark(f"Note: {note}.") for note in guessed.notes),
        "#",
        "# To import the file:",
        f"#   {import_command}",
        "",
        f"name = {_text(guessed.name)}",
        f"window = {_text(guessed.window)}  {_remark(f'retrained once a window: {guessed.window_why}')}",
    ]
    lines += _assign(chosen.task)
    if guessed.is_past and "schedule" not in chosen.task:
        lines.append(
            'schedule = "manual"  # the file ends in the past; without this line, every window\'s end retrains'
        )
    lines += [
        "",
        "[target]",
        f"name = {_text(guessed.label.key)}  {_remark(f'{_describe(guessed.label)}; {guessed.label_why}')}",
        f'kind = "{"classification" if guessed.is_classification else "regression"}"',
    ]
    if guessed.is_count:
        lines.append("# minimum = 0  # if it counts something: predictions and intervals are then never negative")
    if guessed.classes:
        lines += _list_classes(guessed.classes)
    if guessed.label.num_missing:
        lines.append(f"# Rows without a label, which are refused: {guessed.label.num_missing:,}")
    for name, one in guessed.features:
        lines += ["", "[[features]]", f"name = {_text(name)}  {_remark(_describe(one))}"]
        lines.append(f'kind = "{one.kind}"  {_remark(one.why)}')
        if one.num_missing:
            share = 100 * one.num_missing / max(1, profile.num_rows)
            lines.append(f"optional = true  # missing in {say_count(one.num_missing, 'row')} ({share:.1f} %)")
    if chosen.guard:
        lines += ["", "[guard]", *_assign(chosen.guard)]
    guesses = {"experts": [f'experts = "auto"  {_remark(_EXPERTS)}'], "regression_loss": _choose_loss(guessed)}
    lines += ["", "[training]", *(line for key, said in guesses.items() if key not in chosen.training for line in said)]
    lines += _assign(chosen.training)
    if guessed.left_out:
        lines += ["", "# Left out:"]
        lines += [
            _remark(f"  {one.name}: {'another column of moments' if one.kind == 'moment' else one.why}")
            for one in guessed.left_out
        ]
    return "\n".join(lines) + "\n"


def _describe_rows(guessed: Guessed, profile: Profile) -> str:
    rows = f"{'The first ' if profile.is_cut else ''}{say_count(profile.num_rows, 'row')}"
    by = " and ".join(guessed.at.column.parts or (guessed.at.name,))
    return f"{rows} from {guessed.first.isoformat()} to {guessed.last.isoformat()}, by {by}."


def _describe(one: Judged) -> str:
    """The column and its most frequent values."""
    name = "" if suggest_name(one.name) == one.name else f"{one.name!r}: "
    return f"{name}{one.examples}"


def _remark(text: str) -> str:
    """A comment of TOML: one line, cut if it is very long, without the characters that it cannot hold."""
    plain = _UNPRINTABLE.sub(" ", text)
    return f"# {plain if len(plain) <= 2 * _WIDTH else f'{plain[: 2 * _WIDTH]}…'}"


def _choose_loss(guessed: Guessed) -> list[str]:
    """The line of a loss whose answers are means, if the median of the labels is one value that most of them share."""
    if guessed.is_classification:
        return []
    (value, count), *_ = guessed.label.counts.most_common(1)
    share = count / guessed.label.counts.total()
    if share <= _MOST_LABELS:
        return []
    why = f"answers are means, not medians: {share:.0%} of labels are {value}, and so would most answers be"
    return [f'regression_loss = "gaussian"  {_remark(why)}']


def _list_classes(classes: tuple[str, ...]) -> list[str]:
    """The lines of the classes: one, or one for each class if that is too long."""
    remark = _remark("other labels are refused; without these classes, all are taken")
    line = f"classes = [{', '.join(map(_text, classes))}]"
    if len(line) <= _WIDTH:
        return [f"{line}  {remark}"]
    return [f"classes = [  {remark}", *(f"    {_text(one)}," for one in classes), "]"]


def _assign(values: Mapping[str, object]) -> list[str]:
    """A line for each key with a value; None is not written."""
    return [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]


def _value(value: object) -> str:
    """A value of TOML."""
    match value:
        case str():
            return _text(value)
        case Mapping():
            return f"{{ {', '.join(_assign(value))} }}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)


def _text(text: str) -> str:
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Control characters and lone surrogates, which no text of TOML holds as they are.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
