"""What texts look like before anybody knows their form: dates, and times of day."""

import re
from collections.abc import Collection

_TIME = re.compile(r"(\d{1,2})([:.h])(\d\d)(?:([:.])(\d\d)(?:[.,]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?(?: ?Uhr)?", re.ASCII)


def looks_like_a_moment(text: str) -> bool:
    """Whether a text is a date of any order: bare numbers and years are not."""
    return (
        re.match(r"\d{1,4}[-/.]\d{1,2}[-/.]\d|\d{4}-\d\d$|[^\W\d_]{3,}\.?,? +\d|\d{1,2}[. -]+[^\W\d_]{3}", text)
        is not None
    )


def is_time_of_day(text: str) -> bool:
    """Whether a text may be a time of day, such as 23:00, 23.00.00 or 11:00 PM."""
    found = _TIME.fullmatch(text)
    return found is not None and int(found[1]) <= 24 and int(found[3]) < 60 and int(found[5] or 0) < 60


def are_times_of_day(texts: Collection[str]) -> bool:
    """Whether all texts are times of day, and not dates of two-digit years or numbers."""
    if not texts or not all(map(is_time_of_day, texts)):
        return False
    dotted = [found for text in texts if (found := _TIME.fullmatch(text)) is not None and found[2] == "."]
    # 01.02.03 is a date as well, and 12.50 a number.
    return not dotted or any(found[5] is not None and not 1 <= int(found[3]) <= 12 for found in dotted)
