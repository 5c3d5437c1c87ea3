"""Validates rows: decoders that accept them, compiled from a task, and an explainer of refused ones."""
