"""Where commands look for a running API."""

from typing import Annotated

import typer

LOCAL_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="MORROW_URL", help="Address of the API.")]
