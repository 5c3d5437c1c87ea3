"""Moments that people type as options."""

from contracts.clock import parse_moment
from contracts.errors import Fault, InvalidInput


def parse_option(option: str, text: str) -> int:
    """The moment (RFC 3339) as microseconds. Raises InvalidInput by the option's name."""
    try:
        return parse_moment(text)
    except ValueError as error:
        raise InvalidInput([Fault(option, str(error))]) from None
