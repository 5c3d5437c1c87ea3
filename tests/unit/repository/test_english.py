"""What people read is plain English: none of these constructions, each with the plain way to say it.

In Python files, comments, docstrings and other texts are searched; in others, everything. The text is read as one line,
so a construction is found across line breaks and comment marks. A part with faults is not in `COVERED` yet; add it
as soon as it is clean.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[3]

BANNED = {
    r"\b[Ww]hoever\b": "name the person or program: 'a client that', 'anyone with access'",
    r"(?:^|[.;:] )Who (?!is\b|are\b)[a-z]+ [^.?]*\.(?= |$)": "name the person or program: 'a client that …'",
    r"(?<![\"'`])\bbeside\b(?![\"'`])": "'compared with', 'next to' or 'together with'",
    r"\b(?:is|are|was|were) (?:meant )?to (?:be|become|do|end|get|give|go|have|hold|make|run|say|stay|take)\b": (
        "'must', 'can' or 'should'"
    ),
    r"\b(?:tell|tells|telling|told) of\b": "'report', 'show' or 'say'",
    r"\btold (?:from|in|apart by)\b": "'distinguished from', 'described in'",
    r"\bso (?:many|few|much|long)\b(?! (?:as|that)\b)": "'this many', 'that long', or the number",
    r"\b[Ff]rom (?!now|then|there|here)(?:the |a )?[\w']+ on(?=[,.;:)])": "'after', 'since' or 'for … and more'",
    r"\buntil when\b": "'the end of …' or 'how long'",
    r"\bas (?:it|they) (?:stands?|stood)\b": "'as printed', 'unchanged'",
    r"\b(?:[Rr]aises? \w+|None|True|False|nothing|unset|empty) where\b": "'if': 'where' is for places",
    r"\b[Ww]here (?:not|none|there (?:is|are) (?:no|none|not|nothing))\b": "'if': 'where' is for places",
    r"\b(?:errs|erred)\b": "'is wrong', 'has an error of'",
    r"\banew\b": "'again'",
    r"\b(?:asked|read|served|taken|there|used) no more\b(?! than)": "'is no longer …'",
}

# Pages of `docs/` that code prints, or that report figures.
_FIGURES = ("boolean.md", "flights.md", "moons.md", "paper.md", "replay.md", "results.md")
_PROSE = ("*.py", "*.html", "*.js", "*.toml", "*.mako")

COVERED = (
    "figures",
    "benchmarks",
    "handbook",
    "pages",
    "changelog",
    "deployment",
    "contracts",
    "store",
    "service",
    "migrations",
    "trainer",
    "cli",
    "client",
    "estimators",
    "tests",
    "reference",
)


def pages() -> list[Path]:
    """What is written by hand in Markdown, the changelog's entries of the past aside."""
    found = [*HOUSE.glob("docs/**/*.md"), HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", HOUSE / "SECURITY.md"]
    return [page for page in found if page.parent.name != "reference" and page.name not in _FIGURES]


PARTS = {
    "pages": pages(),
    "figures": [HOUSE / "docs" / name for name in _FIGURES],
    "reference": sorted((HOUSE / "docs" / "reference").glob("*.md")),
    "changelog": [HOUSE / "CHANGELOG.md"],
    "deployment": [
        *(file for file in (HOUSE / "docker").rglob("*") if file.is_file()),
        *HOUSE.glob("docker-compose*.yml"),
        *(HOUSE / name for name in ("Makefile", ".env.example", ".ci/run")),
    ],
    **{
        folder: sorted(
            file for pattern in _PROSE for file in (HOUSE / folder).rglob(pattern) if "vendor" not in file.parts
        )
        for folder in (
            "client",
            "contracts",
            "store",
            "service",
            "trainer",
            "cli",
            "estimators",
            "migrations",
            "benchmarks",
            "handbook",
            "tests",
        )
    },
}


def prose_of(file: Path) -> str:
    """What people read in a file, on one line."""
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        texts = (token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))
        text = "\n".join(map(without_quotes, texts))
    return re.sub(r"\s*\n[\s#*>]*", " ", text)


def without_quotes(text: str) -> str:
    """A literal of several words without its quotation marks; a single word keeps them, as it is a name or a key."""
    return re.sub(r"^[rbfRBF]*(\"{3}|\"|')(.*)\1$", r"\2", text, flags=re.DOTALL) if " " in text else text


def faults_of(file: Path) -> list[str]:
    """Each banned construction of a file in its sentence, with the plain alternative."""
    text = prose_of(file)
    return [
        f"{file.relative_to(HOUSE)}: …{text[max(found.start() - 40, 0) : found.end() + 20]}… → {plain}"
        for construction, plain in BANNED.items()
        for found in re.finditer(construction, text)
    ]


@pytest.mark.parametrize("part", COVERED)
def test_a_part_says_things_plainly(part: str) -> None:
    files = [file for file in PARTS[part] if file != Path(__file__)]
    assert files
    assert [fault for file in files for fault in faults_of(file)] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Whoever reads the file must wait.",
        "It failed. Who meets an outage tries again.",
        "A row that stands beside another.",
        "The level that is to be reached.",
        "Lines that tell of a release.",
        "A worker that is stale for so long.",
        "Twelve domains from the test's on, each forecast.",
        "It says until when it is valid.",
        "Raises Conflict where the row differs.",
        "The default where not set.",
        "LightGBM errs in 17 %.",
        "The matrix is filled anew.",
        "A dropped feature is read no more.",
    ],
)
def test_a_banned_construction_is_found(sentence: str) -> None:
    assert any(re.search(construction, sentence) for construction in BANNED)


@pytest.mark.parametrize(
    "sentence",
    [
        "From then on, every request needs a key.",
        "Who may ask? A key says so.",
        "So long as the lease holds, no other trainer claims the cutoff.",
        "The folder where its files are.",
        "The shift has moved from the mean on the first window.",
        "It adds no more than 1 %.",
    ],
)
def test_plain_english_is_left_alone(sentence: str) -> None:
    assert not any(re.search(construction, sentence) for construction in BANNED)
