"""Which rows a run stands on, as MLflow tells it beside the run: it keeps a description, never the rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlflow.entities import Dataset, DatasetInput

_MAX_DIGEST = 36


@dataclass(frozen=True)
class Lineage:
    """Rows as MLflow describes them: where they come from, which columns they have, how many they are.

    `digest` tells rows apart; MLflow keeps 36 characters of one.
    """

    name: str
    digest: str
    source: Mapping[str, object]
    columns: Sequence[Mapping[str, object]]
    counts: Mapping[str, object]


def as_input(lineage: Lineage) -> DatasetInput:
    """The description as MLflow takes it beside a run."""
    dataset = Dataset(
        name=lineage.name,
        digest=lineage.digest[:_MAX_DIGEST],
        source_type="code",
        source=json.dumps({"tags": lineage.source}),
        schema=json.dumps({"mlflow_colspec": lineage.columns}),
        profile=json.dumps(lineage.counts),
    )
    return DatasetInput(dataset, [])
