"""How every command of `morrow` fails: in a sentence."""

from typing import Any

import typer
from typer.core import TyperGroup

from contracts.errors import MorrowError


class Commands(TyperGroup):
    """Shows our errors as sentences, with exit code 1; anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        from pydantic import ValidationError

        try:
            return super().invoke(ctx)
        except MorrowError as error:
            sentence = str(error)
        except ValidationError as error:
            prefix = "MORROW_" if error.title.endswith("Settings") else ""
            sentence = "\n".join(
                f"{_name_field(fault['loc'], prefix)}: {fault['msg']}" for fault in error.errors(include_url=False)
            )
        typer.secho(sentence, fg="red", err=True)
        raise typer.Exit(1)


def _name_field(path: tuple[int | str, ...], prefix: str) -> str:
    """A field as people wrote it: a setting by its environment variable."""
    name = ".".join(map(str, path))
    return prefix + name.upper() if prefix else name
