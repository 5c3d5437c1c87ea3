"""The `morrow` command: every entry point of the system, assembled from `cli.commands`.

A command imports heavy libraries only when it runs, so that `morrow --help` answers at once.
"""

if __name__ == "__main__":
    from contracts.runtime.entry import begin

    begin()

from collections.abc import Callable
from typing import Any

import typer

from cli.command_group import Commands, Version
from cli.commands import events, hooks, keys, refused, runs, task
from cli.commands.backtest import backtest
from cli.commands.completion import answer_completions, completion
from cli.commands.cycle import cycle
from cli.commands.doctor import doctor
from cli.commands.predict import predict
from cli.commands.release import override, rollback
from cli.commands.replay import replay
from cli.commands.seal import seal
from cli.commands.stack import demo, migrate, serve, trainer, up

COMMANDS: tuple[Callable[..., Any], ...] = (
    demo,
    up,
    serve,
    trainer,
    migrate,
    cycle,
    predict,
    doctor,
    completion,
    rollback,
    override,
    backtest,
    replay,
)
events.app.command()(seal)
GROUPS = {
    "task": task.app,
    "events": events.app,
    "hooks": hooks.app,
    "refused": refused.app,
    "keys": keys.app,
    "runs": runs.app,
}

answer_completions()
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # `morrow completion` prints the script instead
    pretty_exceptions_enable=False,
    help="Models trained for the window they will serve.",
)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
for command in COMMANDS:
    app.command()(command)


@app.callback()
def morrow(*, version: Version = False) -> None:
    """Hold the options that stand before a command; their callbacks act."""


if __name__ == "__main__":
    app()
