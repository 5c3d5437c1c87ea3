"""Types of values in answers, for the structs that encode answers and describe them. Imports nothing heavy."""

from typing import Annotated

from msgspec import Meta

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
