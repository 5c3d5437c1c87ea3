"""The HTML of the pages: Jinja templates in `templates/`, and the security headers that go with every page.

A page loads nothing from other hosts. Its scripts and styles are the files in `static/`, and its content security
policy refuses everything else.
"""

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from contracts.clock import from_micros, parse_moment
from contracts.quality.skill import compare

if TYPE_CHECKING:
    from jinja2 import Environment

_STATIC = Path(__file__).parents[1] / "static"
_PAGES = ("/pages/", "/problems/")
_HTML = Path(__file__).parents[1] / "templates"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class StaticPages(StaticFiles):
    """The files in `static/`; a browser revalidates them each time."""

    path_format = "/static/{file}"

    def __init__(self) -> None:
        super().__init__(directory=_STATIC)

    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers.update({"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})
        return response


def answer_page(template: str, path: str, status: int = 200, **found: Any) -> HTMLResponse:
    """The page that a template makes for `path`; addresses in it are relative to that path."""
    root = "../" * (path.count("/") - 1)
    known = {"root": root, "path": path, "mlflow": None, **found}
    return HTMLResponse(_templates().get_template(template).render(known), status, HEADERS)


def is_page(path: str) -> bool:
    """Whether people look at this path."""
    return path in ("/", "/docs") or path.startswith(_PAGES)


def accepts_html(scope: Scope) -> bool:
    """Whether a browser opens this path, rather than a program."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def shorten_moment(text: str | None) -> str:
    """A timestamp for people: a space for the T, and whole seconds."""
    return re.sub(r"^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.\d+)?Z$", r"\1 \2Z", text or "")


def say_distance(moment: int | str, now: int) -> str:
    """How far a moment is from now, in words: `in 3 hours`, `2 days ago`. Microseconds, or RFC 3339."""
    micros = parse_moment(moment) if isinstance(moment, str) else moment
    if abs(micros - now) < 60_000_000:
        return "just now" if micros <= now else "in a moment"
    return f"in {say_length(micros - now)}" if micros > now else f"{say_length(now - micros)} ago"


def say_length(micros: int, *, at_most: bool = False) -> str:
    """A duration, rounded, in the largest unit of which that makes two or more; below, one minute.

    `at_most` rounds down: what is left of a time must not look longer than it is.
    """
    whole = math.floor if at_most else round
    lengths = ((name, whole(micros / (seconds * 1_000_000)), most) for name, seconds, most in _UNITS)
    name, number = next((name, number) for name, number, most in lengths if number < most)
    return f"{number:,} {name}s" if number > 1 else "1 minute"


# From this number of a unit on, the next one is said. A year is the calendar's mean.
_UNITS = (("minute", 60, 120), ("hour", 3600, 48), ("day", 86_400, 731), ("year", 31_556_952, math.inf))


def fill_moment(micros: int) -> str:
    """A timestamp as a form field holds it, in UTC and to the second."""
    return from_micros(micros).strftime("%Y-%m-%dT%H:%M:%S")


def round_percent(share: float | None) -> str:
    """A share in whole percent; a dash if there is none."""
    return "–" if share is None else f"{round(share)} %"


def group_digits(number: int) -> str:
    """A count with a comma between thousands."""
    return f"{number:,}"


def fill_value(value: float | str) -> str:
    """A value as a form field holds it: whole numbers without a point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def say_seconds(seconds: float | None) -> str:
    """A duration for people; a dash if there is none."""
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 60 else say_length(round(seconds * 1_000_000))


def say_share(share: float | None) -> str:
    """A share in percent, to a tenth; a dash if there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def four_figures(value: float | None) -> str:
    """Four significant figures, trailing zeros too, so that a column lines up; a dash if there is no value."""
    return "–" if value is None else f"{value:#.4g}".rstrip(".")


def say_amount(value: float | None) -> str:
    """A count with its thousands apart, or any other value in four figures."""
    return group_digits(value) if isinstance(value, int) else four_figures(value)


def say_name(name: str) -> str:
    """An identifier as words."""
    return name.replace("_", " ")


def indent_json(document: object) -> str:
    """An answer for people: indented JSON, or the text if it is none."""
    return document if isinstance(document, str) else json.dumps(document, indent=2, ensure_ascii=False)


def mark_code(text: str) -> Markup:
    """Text with the parts between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 it is escaped first


@cache
def _templates() -> "Environment":
    """The templates. Jinja is imported for the first page, which a service for programs only never makes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(_HTML), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    templates.filters |= {
        "moment": shorten_moment,
        "relative": say_distance,
        "skill": compare,
        "percent": round_percent,
        "pretty": indent_json,
        "plain": fill_value,
        "field_moment": fill_moment,
        "figure": four_figures,
        "duration": say_seconds,
        "share": say_share,
        "amount": say_amount,
        "count": group_digits,
        "words": say_name,
        "code": mark_code,
    }
    return templates
