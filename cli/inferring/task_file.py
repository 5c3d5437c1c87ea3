"""The task file that `morrow task infer` writes: TOML with a comment for each guess, and the commands that follow."""

import json
import shlex
from pathlib import Path

from cli.file_rows.formats import Format
from cli.inferring.guess import Guessed
from cli.inferring.kinds import Judged
from cli.inferring.profile import Profile
from cli.reading.options import Options
from contracts.spec_values import suggest_name

_WIDTH = 118


def write_task_file(guessed: Guessed, profile: Profile, file: Path, import_command: str) -> str:
    """The text of the file."""
    lines = [
        f"# Guessed by `morrow task infer` from {file.name}: check it, and change what is wrong.",
        f"# {_describe_rows(guessed, profile)}",
        f"# {'Ids are digests of rows' if guessed.ids is None else f'Ids are in {guessed.ids}'}.",
        *(f"# Note: {note}." for note in guessed.notes),
        "#",
        "# To import the file:",
        f"#   {import_command}",
        "",
        f"name = {_text(guessed.name)}",
        f"window = {_text(guessed.window)}  # retrained once a window: {guessed.window_why}",
    ]
    if guessed.is_past:
        lines.append(
            'schedule = "manual"  # the file ends in the past; without this line, every window\'s end retrains'
        )
    lines += [
        "",
        "[target]",
        f"name = {_text(suggest_name(guessed.label.name).lower())}  # {_comment(guessed.label)}; {guessed.label_why}",
        f'kind = "{"classification" if guessed.is_classification else "regression"}"',
    ]
    if guessed.classes:
        lines.append(
            f"classes = {_texts(guessed.classes)}  # other labels are refused; without this line, all are taken"
        )
    if guessed.label.num_missing:
        lines.append(f"# {guessed.label.num_missing:,} rows have no label, and are refused.")
    for name, one in guessed.features:
        lines += ["", "[[features]]", f"name = {_text(name)}  # {_comment(one)}", f'kind = "{one.kind}"  # {one.why}']
        if one.num_missing:
            share = 100 * one.num_missing / max(1, profile.num_rows)
            lines.append(f"optional = true  # missing in {one.num_missing:,} rows ({share:.1f} %)")
    if guessed.left_out:
        lines += ["", "# Left out:"]
        lines += [
            f"#   {one.name}: {'another column of moments' if one.kind == 'moment' else one.why}"
            for one in guessed.left_out
        ]
    return "\n".join(line if len(line) <= 2 * _WIDTH else f"{line[: 2 * _WIDTH]}…" for line in lines) + "\n"


def spell_command(task: str, file: Path, format: Format | None, options: Options) -> str:
    """The command that imports the file with these options."""
    words = ["morrow", "events", "import", task, str(file)]
    for name, column in options.columns:
        words += ["--map", f"{name}={column}"]
    if options.timezone is not None:
        words += ["--timezone", options.timezone]
    if options.day_first is not None:
        words.append("--dayfirst" if options.day_first else "--monthfirst")
    given = {
        "--format": format,
        "--at-format": options.at_format,
        "--missing": ",".join(sorted(options.missing)) or None,
        "--decimal": options.decimal,
        "--id-from": ",".join(options.id_from) or None,
        "--separator": options.separator,
        "--quote": options.quote,
        "--encoding": options.encoding,
    }
    for option, value in given.items():
        if value is not None:
            words.append(f"{option}={value}" if value.startswith("-") else option)
            words += [] if value.startswith("-") else [value]
    for name in options.dropped:
        words += ["--drop", name]
    return shlex.join(words)


def _describe_rows(guessed: Guessed, profile: Profile) -> str:
    rows = f"{'The first ' if profile.is_cut else ''}{profile.num_rows:,} rows"
    times = " and ".join(one.name for one in guessed.at)
    return f"{rows} from {guessed.first.isoformat()} to {guessed.last.isoformat()}, by {times}."


def _comment(one: Judged) -> str:
    """The column and its most frequent values, in one line."""
    name = "" if suggest_name(one.name) == one.name else f"{one.name!r}: "
    return f"{name}{one.examples}".translate(_PLAIN)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _texts(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


# Control characters, which a comment of TOML cannot hold.
_PLAIN = dict.fromkeys([*range(32), *range(127, 160)], " ")
