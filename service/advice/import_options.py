"""How a file was read, as the client of its import says, and the commands that read the next file alike.

The names of the options are those of `cli.reading.options`.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from contracts.spec.spec_values import MAX_TEXT, PRINTABLE

# What a file of questions lacks: a mapping of one of these names does not concern it.
_OF_EVENTS_ALONE = ("event_id", "known_at", "label")
# Control characters and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class ImportOptions(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The options of an import; what is left out was found in the file.

    columns     our names, each with the name of a column of the file
    id_from     columns whose values together are the id
    dropped     columns that are not read
    """

    format: Literal["csv", "ndjson", "parquet"] | None = None
    encoding: str | None = None
    separator: str | None = None
    quote: str | None = None
    columns: dict[str, str] = {}
    id_from: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    timezone: str | None = None
    day_first: bool | None = None
    at_format: str | None = None
    decimal: Literal["point", "comma"] | None = None


def can_be_kept(options: ImportOptions) -> bool:
    """Whether the record of an import can hold every text of these options."""
    listed = (*options.columns, *options.columns.values(), *options.id_from, *options.dropped, *options.missing)
    single = (options.encoding, options.separator, options.quote, options.timezone, options.at_format)
    texts = [*listed, *(text for text in single if text is not None)]
    return all(0 < len(text) <= MAX_TEXT and re.match(PRINTABLE, text) for text in texts)


def spell_import(task: str, options: ImportOptions, file: str = "FILE") -> str:
    """The command that imports a file with these options."""
    return spell(["morrow", "events", "import", task, path_word(file), *list_words(options)])


def spell_predict(
    task: str, options: ImportOptions, file: str = "FILE", out: str = "ANSWERS.csv", more: Sequence[str] = ()
) -> str:
    """The command that predicts the rows of a file with these options; `more` are other words."""
    columns = {name: column for name, column in options.columns.items() if name not in _OF_EVENTS_ALONE}
    words = list_words(replace(options, columns=columns, id_from=()))
    return spell(["morrow", "predict", task, path_word(file), "--out", path_word(out), *more, *words])


def list_words(options: ImportOptions) -> list[str]:
    """The options as words of a command."""
    words = [word for name, column in options.columns.items() for word in ("--map", f"{name}={column}")]
    if options.timezone is not None:
        words += ["--timezone", options.timezone]
    if options.day_first is not None and options.at_format is None:
        words.append("--dayfirst" if options.day_first else "--monthfirst")
    given = {
        "--format": options.format,
        "--at-format": options.at_format,
        "--missing": ",".join(options.missing) or None,
        "--decimal": options.decimal,
        "--id-from": ",".join(options.id_from) or None,
        "--separator": options.separator,
        "--quote": options.quote,
        "--encoding": options.encoding,
    }
    for option, value in given.items():
        if value is not None:
            words += [f"{option}={value}"] if value.startswith("-") else [option, value]
    return words + [word for name in options.dropped for word in ("--drop", name)]


def spell(words: list[str]) -> str:
    """The words as a command of a shell."""
    return " ".join(map(_quote, words))


def path_word(file: str) -> str:
    """A path as a word that is no option."""
    return f"./{file}" if file.startswith("-") and file != "-" else file


def _quote(word: str) -> str:
    """A word for a shell, in one line of text: control characters and bytes that are no text as bash escapes them."""
    if not _UNPRINTABLE.search(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNPRINTABLE.sub(lambda found: _escape(found[0]), escaped)}'"


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
