"""The rows that a run stands on, as MLflow lists data sets: it keeps a description, never the rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlflow.entities import Dataset, DatasetInput

_MAX_DIGEST = 36


@dataclass(frozen=True)
class DataSet:
    """Rows as MLflow describes them beside a run: where they come from, which columns they have, how many they are.

    `digest` tells rows apart; MLflow keeps 36 characters of one.
    """

    name: str
    digest: str
    source: Mapping[str, object]
    columns: Sequence[Mapping[str, object]]
    counts: Mapping[str, object]


def as_input(data: DataSet) -> DatasetInput:
    """The description as MLflow takes it beside a run."""
    dataset = Dataset(
        name=data.name,
        digest=data.digest[:_MAX_DIGEST],
        source_type="code",
        source=json.dumps({"tags": data.source}),
        schema=json.dumps({"mlflow_colspec": data.columns}),
        profile=json.dumps(data.counts),
    )
    return DatasetInput(dataset, [])
