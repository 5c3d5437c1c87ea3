"""How a text file is written: its encoding, its separator and its quotation mark, found by looking into it."""

import codecs
import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from cli.reading.options import Options
from contracts.errors import Fault, InvalidInput

csv.field_size_limit(sys.maxsize)  # longer cells are refused by row, not by file

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NAMES = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with a byte-order mark",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "cp1252": "Windows-1252",
    "cp932": "Shift-JIS",
}
_BLOCK_BYTES = 2**20
_SAMPLE_LINES = 200
# Titles are recognised only above several rows of more than two cells each.
_FEWEST_LINES, _FEWEST_CELLS, _MOST_TITLES = 5, 3, 20
_SAMPLE_CHARACTERS = 2**18
_BAD = re.compile("[\udc80-\udcff]")
_GOOD = re.compile("[\u0080-\ud7ff\ue000-\U0010ffff]")
# Bytes of hiragana and katakana in Shift-JIS, which hardly occur in Windows-1252.
_KANA = re.compile(rb"\x82[\x9f-\xf1]|\x83[\x40-\x96]")
# A word without any ASCII letter: western words have some.
_FOREIGN_WORD = re.compile(rb"(?<![A-Za-z\xa1-\xff])[\xa1-\xff]{4,}(?![A-Za-z\xa1-\xff])")
_WESTERN_WORD = re.compile(rb"[A-Za-z][\xa1-\xff]|[\xa1-\xff][A-Za-z]")
_FEWEST_WORDS = 3
_ESCAPE = re.compile(r"\\([\\\"'])")
_FIGURES = re.compile(r"[\d.,:/ +-]*\d[\d.,:/ +-]*")
_SEP_LINE = re.compile(r"sep=(.)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How the lines of a file are written.

    `has_sep_line`: the first line only names the separator, as Excel writes it. `num_titles`: lines behind it that say
    what the file is, above the header. `skips_spaces`: after separators.
    `is_escaped`: quotation marks inside cells are written with a backslash, as MySQL and Spark do.
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    skips_spaces: bool = False
    has_sep_line: bool = False
    is_escaped: bool = False
    num_titles: int = 0

    @property
    def num_above(self) -> int:
        """The lines above the header."""
        return self.has_sep_line + self.num_titles

    def describe(self) -> str:
        """In words, for people."""
        separated = _SEPARATORS.get(self.separator, repr(self.separator))
        quoted = "" if self.quote == '"' else f", quoted by {self.quote}"
        escaped = f", with \\{self.quote} inside cells" if self.is_escaped else ""
        header = f", with the names of the columns in line {self.num_above + 1}" if self.num_titles else ""
        return f"{name_encoding(self.encoding)}, separated by {separated}{quoted}{escaped}{header}"


def name_encoding(encoding: str) -> str:
    """An encoding under the name that people know."""
    return _NAMES.get(encoding, encoding)


def find_encoding(stream: BinaryIO, given: str | None) -> str:
    """The encoding of a whole file: by its byte-order mark, else UTF-8, else Shift-JIS or Windows-1252.

    A file that is UTF-8 but for a few bytes counts as UTF-8, and the lines with these bytes are refused. Raises
    InvalidInput, also for other bytes that are no western text.
    """
    if given is not None:
        try:
            found = codecs.lookup(given).name
        except (LookupError, ValueError):
            raise InvalidInput(
                [Fault("--encoding", f"{given!r} is unknown; usual ones are utf-8, utf-16, windows-1252 and latin-1")]
            ) from None
        return "utf-8-sig" if found == "utf-8" else found
    head = stream.read(_BLOCK_BYTES)
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    if (half := _find_utf16(head)) is not None:
        return half
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    num_bad = num_good = num_kana = num_foreign = num_western = 0
    while head:
        if not head.isascii() or decoder.getstate()[0]:
            text = decoder.decode(head)
            num_bad += len(_BAD.findall(text))
            num_good += len(_GOOD.findall(text))
            num_kana += len(_KANA.findall(head))
            num_foreign += len(_FOREIGN_WORD.findall(head))
            num_western += len(_WESTERN_WORD.findall(head))
        head = stream.read(_BLOCK_BYTES)
    if num_bad <= num_good:
        return "utf-8"
    if 4 * num_kana > num_bad:
        return "cp932"
    if num_foreign >= _FEWEST_WORDS and num_foreign > num_western:
        raise InvalidInput(
            [
                Fault(
                    "--encoding",
                    "is needed: the file is neither UTF-8 nor western. Name it, such as windows-1251 "
                    "(Cyrillic), gb18030 (Chinese), euc-kr (Korean), euc-jp or shift_jis (Japanese)",
                )
            ]
        )
    return "cp1252"


def _find_utf16(head: bytes) -> str | None:
    """UTF-16 without a mark: every second byte of western text is NUL."""
    sample = head[:4096]
    even, odd = sample[0::2], sample[1::2]
    if len(odd) < 8:
        return None
    if odd.count(0) > 0.4 * len(odd) and even.count(0) < 0.05 * len(even):
        return "utf-16-le"
    if even.count(0) > 0.4 * len(even) and odd.count(0) < 0.05 * len(odd):
        return "utf-16-be"
    return None


def open_text(stream: BinaryIO, encoding: str) -> io.TextIOWrapper:
    """The text of a stream. Bytes that are not of the encoding become lone surrogates, which `is_broken` finds."""
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")


def is_broken(text: str) -> bool:
    """Whether a text holds bytes that are not of its file's encoding."""
    return _BAD.search(text) is not None


def find_dialect(lines: Iterator[str], encoding: str, options: Options) -> Dialect:
    """The dialect of a file by its first lines. Raises InvalidInput for an option that makes no sense."""
    numbered = _take(lines)
    has_sep_line = bool(numbered) and _SEP_LINE.fullmatch(numbered[0][1]) is not None
    named = numbered[0][1].strip()[4:5] if has_sep_line else None
    numbered = numbered[1:] if has_sep_line else numbered
    quote = _one_character("--quote", options.quote, {"none": "\x00"}) or '"'
    given = _one_character("--separator", options.separator, _WORDS) or named
    texts = [row for _, row in numbered]
    likely = given or _find_separator(texts[len(numbered) // 2 :], quote)
    above = _find_titles(texts, likely, quote)
    num_titles = numbered[above][0] - has_sep_line if above else 0
    rows = [row for _, row in numbered[above:]]
    separator = given or _find_separator(rows, quote)
    if options.quote is None and _is_quoted_by("'", rows, separator):
        quote = "'"
    is_escaped = _is_escaped(rows, separator, quote)
    return Dialect(encoding, separator, quote, _skips_spaces(rows, separator), has_sep_line, is_escaped, num_titles)


def unescape(line: str) -> str:
    """A line in which a quotation mark inside a cell is doubled, and no longer behind a backslash."""
    return _ESCAPE.sub(lambda found: found[1] if found[1] == "\\" else found[1] * 2, line)


def _take(lines: Iterator[str]) -> list[tuple[int, str]]:
    """The first lines that are not blank, cut to a sample, each with the number of lines before it."""
    found: list[tuple[int, str]] = []
    room = _SAMPLE_CHARACTERS
    for number, line in enumerate(islice(lines, _SAMPLE_LINES)):
        if line.strip() and room > 0:
            found.append((number, line[:room]))
            room -= len(line)
    return found


def _find_titles(rows: Sequence[str], separator: str, quote: str) -> int:
    """How many of the first lines only say what the file is: far fewer of their cells are filled than of others.

    The line behind them names the columns, so it holds no number and no date.
    """
    table = [[cell.strip() for cell in cells] for cells in csv.reader(rows, delimiter=separator, quotechar=quote)]
    if len(table) != len(rows) or len(rows) < _FEWEST_LINES:
        return 0
    filled = [sum(map(bool, cells)) for cells in table]
    usual = sorted(filled)[len(filled) // 2]
    above = next((place for place, number in enumerate(filled) if number > usual / 2), 0)
    is_header = 0 < above <= _MOST_TITLES and not any(map(_FIGURES.fullmatch, table[above]))
    return above if is_header and usual >= _FEWEST_CELLS else 0


def _one_character(option: str, given: str | None, words: dict[str, str]) -> str | None:
    if given is None:
        return None
    found = words.get(given.lower(), given)
    if len(found) != 1 or found in "\r\n":
        raise InvalidInput([Fault(option, f"{given!r} is not one character")])
    return found


def _find_separator(rows: Sequence[str], quote: str) -> str:
    """The separator that splits most rows into as many cells as the header; of several, the one with most cells."""
    best, found = (0.0, 1), ","
    for separator in _SEPARATORS:
        widths = [len(cells) for cells in csv.reader(rows, delimiter=separator, quotechar=quote) if cells]
        if not widths or widths[0] < 2:
            continue
        agreement = sum(width == widths[0] for width in widths) / len(widths)
        if (round(agreement, 1), widths[0]) > best:
            best, found = (round(agreement, 1), widths[0]), separator
    return found


def _is_quoted_by(quote: str, rows: Sequence[str], separator: str) -> bool:
    """Whether cells of some column stand within this mark, and none within double ones."""
    cells = [[cell.strip() for cell in row.strip("\r\n").split(separator)] for row in rows]
    if any(cell.startswith('"') for row in cells for cell in row):
        return False
    width = len(cells[0]) if cells else 0
    columns = zip(*(row[:width] for row in cells[1:] if len(row) >= width), strict=True)
    return any(
        column.count("") < len(column)
        and all(len(cell) > 1 and cell[0] == cell[-1] == quote for cell in column if cell)
        for column in map(list, columns)
    )


def _is_escaped(rows: Sequence[str], separator: str, quote: str) -> bool:
    """Whether more rows have the width of the header if a backslash escapes quotation marks."""
    doubtful = [row for row in rows if f"\\{quote}" in row]
    if not doubtful:
        return False
    width = len(next(csv.reader(rows[:1], delimiter=separator, quotechar=quote), []))

    def count_good(lines: Sequence[str]) -> int:
        num_good = 0
        for line in lines:
            try:
                num_good += [
                    len(cells) for cells in csv.reader([line], delimiter=separator, quotechar=quote, strict=True)
                ] == [width]
            except csv.Error:
                continue
        return num_good

    return count_good([unescape(row) for row in doubtful]) > count_good(doubtful)


def _skips_spaces(rows: Sequence[str], separator: str) -> bool:
    """Whether a space follows every separator."""
    if separator == " ":
        return False
    rest = [cell for row in rows for cell in row.rstrip("\r\n").split(separator)[1:] if cell]
    return bool(rest) and all(cell.startswith(" ") for cell in rest)
