"""Replay of a task's past: retrained cutoff by cutoff in simulated time, and scored."""
