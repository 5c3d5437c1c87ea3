"""`morrow predict`: answers to the rows of a file."""

from pathlib import Path
from typing import Annotated

import typer

from cli.client.options import LOCAL_URL, AsJson, Url, parse_moment_option
from cli.client.output import print_json
from cli.file_rows.file_options import (
    AtFormat,
    DayFirst,
    DecimalMark,
    Drop,
    Encoding,
    FormatOption,
    Missing,
    Quote,
    Separator,
    Timezone,
    make_options,
    require_file,
)
from contracts.errors import Fault, InvalidInput

SOME_REFUSED = 3


def predict(
    task: str,
    file: Annotated[
        Path,
        typer.Argument(
            callback=require_file, help="CSV with a header, NDJSON or Parquet, also compressed; - for standard input."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File of answers: .csv, .ndjson or .parquet.")],
    at: Annotated[str | None, typer.Option(help="Moment (RFC 3339) of all rows. Default: the column at.")] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="Share of truths that intervals (low, high), or prediction sets, must hold."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file of answers that exists.")] = False,
    format: FormatOption = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=COLUMN", help="Column of a value, such as at=when. May be repeated."),
    ] = None,
    timezone: Timezone = None,
    day_first: DayFirst = None,
    at_format: AtFormat = None,
    missing: Missing = None,
    decimal: DecimalMark = None,
    drop: Drop = None,
    separator: Separator = None,
    quote: Quote = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Predict every row of a file. Rows are read as `morrow events import` reads them, without a label.

    Rows that the API refuses, such as those outside of the validated horizon, go to a file of their own with the
    reasons. If the command breaks off, the same command resumes it. Exit code 0: every row is answered; 3: some were
    refused; 1: it broke off.
    """
    from cli.predicting.outcome import describe_predicted, print_predicted
    from cli.predicting.predictor import predict_file
    from cli.reading.options import name_options_of_rejects
    from service.advice.import_options import spell_predict

    if out.exists() and not replace:
        raise InvalidInput([Fault("--out", f"{out} exists: choose another name, or add --replace")])
    if coverage is not None and not 0 < coverage < 1:
        raise InvalidInput([Fault("--coverage", f"{coverage:g} is not between 0 and 1")])
    if at is not None:
        parse_moment_option("--at", at)
    options = make_options(
        columns=columns,
        timezone=timezone,
        day_first=day_first,
        at_format=at_format,
        missing=missing,
        decimal=decimal,
        drop=drop,
        separator=separator,
        quote=quote,
        encoding=encoding,
    )
    predicted = predict_file(url, task, file, out, format=format, options=options, at=at, coverage=coverage)
    if as_json:
        print_json(describe_predicted(predicted))
    else:
        again = None
        if predicted.rejects is not None:
            out_again = out.with_name(f"{out.stem}.again{out.suffix}")
            named = name_options_of_rejects(options, predicted.rejects)
            more = ([] if at is None else ["--at", at]) + ([] if coverage is None else ["--coverage", f"{coverage:g}"])
            again = spell_predict(task, named, str(predicted.rejects), str(out_again), more)
        print_predicted(predicted, again)
    if predicted.num_answered < predicted.num_rows:
        raise typer.Exit(SOME_REFUSED)
