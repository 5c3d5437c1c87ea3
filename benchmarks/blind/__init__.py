"""`python -m benchmarks blind`: the default recipe on streams whose features are declared as a newcomer would."""

from benchmarks.blind.command import main as main
