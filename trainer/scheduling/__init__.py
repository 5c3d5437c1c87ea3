"""The trainer's own process: which cutoffs are due, the worker process that trains, and its supervision."""
