"""What writes `docs/reference/`: pages of facts that the code knows already, so that no page can tell another story.

Knows everyone, as `benchmarks` does, and nobody knows it. `python -m handbook` writes the pages anew; a test holds the
committed ones to what it would write.
"""
