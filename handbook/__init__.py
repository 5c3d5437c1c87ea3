"""The writer of `docs/reference/`: its pages come from the code, so that no page contradicts it.

It may import every other package, and none imports it. `python -m handbook` writes the pages; a test compares the
committed ones with the output.
"""
