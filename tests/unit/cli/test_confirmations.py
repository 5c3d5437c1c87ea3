"""The question before a step that loses something, and where nobody can answer it."""

import typer
from typer.testing import CliRunner

from cli.client.output import confirm

app = typer.Typer()


@app.command()
def lose() -> None:
    confirm("Lose everything?")
    typer.echo("lost")


def test_a_question_that_nobody_can_answer_names_the_option_that_skips_it() -> None:
    unanswered = CliRunner().invoke(app, input="")
    assert (unanswered.exit_code, "lost" in unanswered.stdout) == (1, False)
    assert "add --yes" in unanswered.stderr


def test_an_answer_counts_also_from_a_pipe() -> None:
    assert CliRunner().invoke(app, input="y\n").stdout.endswith("lost\n")
    refused = CliRunner().invoke(app, input="n\n")
    assert (refused.exit_code, "lost" in refused.stdout, "--yes" in refused.stderr) == (1, False, False)
