"""Figures as pages, tables and sentences show them."""


def four_figures(value: float | None) -> str:
    """Four significant figures, trailing zeros too, so that a column is alike; a dash where there is none."""
    return "–" if value is None else f"{value:#.4g}".rstrip(".")
