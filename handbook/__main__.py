"""`python -m handbook`: write the pages of `docs/reference/` and the tables of results, and say which pages changed.

`python -m handbook pictures` draws those of `docs/explanation/` instead, which takes some minutes.
"""

import sys
from pathlib import Path

from handbook.pages import PAGES, write_page
from handbook.results.pages import DOCS, RESULT_PAGES, fill

FOLDER = DOCS / "reference"
PICTURE_FOLDER = DOCS / "pictures"


def main(arguments: list[str]) -> None:
    """Write the pages that differ, or draw the pictures."""
    if arguments == ["pictures"]:
        from handbook.pictures import draw  # torch and matplotlib, which no page needs

        draw(PICTURE_FOLDER)
        return
    if arguments:
        raise SystemExit(f"usage: {__doc__}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        _write(FOLDER / f"{name}.md", write_page(name))
    for file in RESULT_PAGES:
        _write(file, fill(file.read_text("utf-8")))


def _write(file: Path, page: str) -> None:
    """Write a page if it differs from its file, and print its name."""
    if not file.exists() or file.read_text("utf-8") != page:
        file.write_text(page, "utf-8")
        print(file.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
