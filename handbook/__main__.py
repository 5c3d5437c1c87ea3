"""`python -m handbook`: write every page of `docs/reference/` anew, and tell which ones changed."""

from pathlib import Path

from handbook.pages import PAGES, write_page

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def main() -> None:
    """Write what differs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        file, page = FOLDER / f"{name}.md", write_page(name)
        if not file.exists() or file.read_text("utf-8") != page:
            file.write_text(page, "utf-8")
            print(file.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main()
