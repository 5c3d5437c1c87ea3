"""`morrow predict` names the categories that the fit of the answering version has hardly seen, as the API does."""

import csv
import json
from pathlib import Path

import httpx
import pyarrow.parquet as pq
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.main import app
from tests.integration.api_process import Running, define_flights, running

AT = "2026-01-30T13:00:00Z"


def predict(api: Running, file: Path, out: Path, *options: str) -> Result:
    command = ["predict", "flights", str(file), "--out", str(out), "--url", api.url, *options]
    return CliRunner().invoke(app, command)


def test_unseen_categories_are_named_in_each_row_and_counted(database_url: str, engine: Engine, tmp_path: Path) -> None:
    define_flights(engine)
    file = tmp_path / "rows.csv"
    carriers = ("UA", "NEW", "AA", "NEW")
    file.write_text("at,distance,carrier\n" + "".join(f"{AT},1400,{carrier}\n" for carrier in carriers))
    (tmp_path / "home").mkdir()
    with running(database_url, tmp_path / "home", carriers=("UA", "AA")) as api:
        body = {"rows": [{"at": AT, "features": {"distance": 1400, "carrier": "NEW"}}]}
        (answer,) = httpx.post(f"{api.url}/predict?task=flights", json=body).json()["answers"]
        assert answer["unseen"] == ["carrier"]
        done = predict(api, file, tmp_path / "answers.csv")
        assert done.exit_code == 0, done.output
        assert "2 rows have a carrier that the version's fit has hardly seen" in done.output
        with (tmp_path / "answers.csv").open() as stream:
            assert [row["unseen"] for row in csv.DictReader(stream)] == ["", "carrier", "", "carrier"]
        facts = json.loads(predict(api, file, tmp_path / "answers.parquet", "--json").stdout)
        assert facts["unseen"] == {"carrier": 2}
        column = pq.read_table(tmp_path / "answers.parquet").column("unseen")
        assert (str(column.type), column.to_pylist()) == ("string", [None, "carrier", None, "carrier"])
        assert predict(api, file, tmp_path / "answers.ndjson").exit_code == 0
        found = [json.loads(line)["answer"] for line in (tmp_path / "answers.ndjson").read_text().splitlines()]
        assert found[1]["unseen"] == ["carrier"]
