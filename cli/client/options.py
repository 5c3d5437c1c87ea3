"""Options that several commands share, and how a moment that someone typed is read."""

from typing import Annotated

import typer

from contracts.errors import Fault, InvalidInput

LOCAL_URL = "http://127.0.0.1:8000"

Url = Annotated[str, typer.Option(envvar="MORROW_URL", help="Address of the API.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Reason = Annotated[str, typer.Option(help="Reason, for the record.")]
Actor = Annotated[str | None, typer.Option(help="Name of the person or program, for the record. Default: admin.")]


def parse_moment_option(option: str, text: str) -> int:
    """The moment (RFC 3339) as microseconds. Raises InvalidInput with the option's name."""
    from contracts.clock import parse_moment

    try:
        return parse_moment(text)
    except ValueError as error:
        raise InvalidInput([Fault(option, str(error))]) from None
