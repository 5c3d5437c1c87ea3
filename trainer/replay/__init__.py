"""A task's past, retrained cutoff by cutoff in simulated time."""
