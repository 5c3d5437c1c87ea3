"""The trainer's own process: what is due, the worker process that does it, and its supervision."""
