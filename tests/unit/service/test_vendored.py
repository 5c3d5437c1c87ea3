"""Files of others are what their list says, and nothing in our own pages is loaded from elsewhere."""

import hashlib
import re
from pathlib import Path

SERVICE = Path(__file__).parents[3] / "service"
VENDOR = SERVICE / "static" / "vendor"


def test_vendored_files_have_the_checksums_of_their_list() -> None:
    listed = dict(
        re.findall(r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE)
    )
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDOR.glob("*.min.*")}
    assert listed == found
    assert {file.name for file in VENDOR.iterdir()} == {*listed, "README.md", "htmx.LICENSE", "uPlot.LICENSE"}


def test_no_page_names_another_host_or_carries_script_or_style_of_its_own() -> None:
    ours = [*(SERVICE / "templates").glob("*.html"), *(SERVICE / "static").glob("*.*")]
    assert len(ours) > 15
    for file in ours:
        words = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in words, file.name
        assert not re.search(r"<script(?![^>]* src=)|<style|\bstyle=|\bon[a-z]+=\"|\| *safe\b", words), file.name
