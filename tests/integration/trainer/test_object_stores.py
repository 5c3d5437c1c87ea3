"""The object store behind kept fits: a folder, and S3 as a server over HTTP speaks it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine
from structlog.testing import capture_logs

from cli.local.stack import free_port
from contracts.runtime.python_process import python_command
from contracts.runtime.surroundings import build_environment
from store.errors import ObjectLost, ObjectStoreAway
from store.objects import Objects
from tests.integration.drifting_task import Story, cutoff_after, define, drifting_task, now, settings
from tests.servers import wait_until_healthy
from trainer.evaluation.backtest import backtest

LOGIN = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
WRITE_IN_A_CHILD = """
import sys
from contracts.runtime.entry import begin
begin()
from store.objects import Objects
objects = Objects(sys.argv[1])
sys.stdout.write(objects.read(objects.write(b"weights")).decode())
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of moto's server, with a bucket `fits`."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    command = python_command("-m", "moto.server", "-H", "127.0.0.1", "-p", endpoint.rpartition(":")[2])
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        wait_until_healthy(f"{endpoint}/moto-api/data.json", server, seconds=120)
        assert httpx.put(f"{endpoint}/fits").is_success
        yield endpoint
        server.terminate()


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/a folder that is made"
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    return f"s3://fits/{tmp_path.name}?endpoint={request.getfixturevalue('s3')}"


def test_objects_are_named_by_their_digest_and_written_as_often_as_one_likes(url: str) -> None:
    one, other = Objects(url), Objects(url)
    assert one.identity() == other.identity()
    digest = one.write(b"weights")
    assert other.write(b"weights") == digest
    assert other.read(digest) == b"weights"
    one.delete([digest, digest])
    with pytest.raises(ObjectLost, match=digest):
        other.read(digest)
    one.check()


def test_a_trainer_reuses_the_fits_of_another_from_a_bucket(
    s3: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    schema = define(engine, drifting_task(), 10)
    url, made = f"s3://fits/{schema.task.name}?endpoint={s3}", []
    for home in ("one", "other"):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM error_cells")
        told, given = Story(), settings(tmp_path / home, fits_url=url)
        backtest(engine, schema, cutoff_after(10), settings=given, now=now, report=told)
        made.append(told.of("matrix.missing"))
    assert made == [[{"num_kept": 0, "num_to_fit": 5}], [{"num_kept": 5, "num_to_fit": 0}]]


def test_a_store_that_was_exchanged_loses_no_object(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    objects = Objects(f"file://{folder}")
    objects.identity()
    digest = objects.write(b"weights")
    folder.rename(tmp_path / "away")
    with pytest.raises(ObjectStoreAway):
        objects.read(digest)
    assert Objects(f"file://{folder}").identity() != objects.identity()


def test_credentials_of_the_store_reach_a_child_and_no_other_ones_do(s3: str) -> None:
    url = f"s3://fits/child?endpoint={s3}"
    given = {**os.environ, **LOGIN, "MORROW_FITS_URL": url, "AZURE_STORAGE_ACCOUNT_KEY": "of somebody else"}
    environment = build_environment(given)
    assert {name: environment.get(name) for name in LOGIN} == LOGIN
    assert "AZURE_STORAGE_ACCOUNT_KEY" not in environment
    assert not LOGIN.keys() & build_environment(given, "mlflow").keys()
    assert not LOGIN.keys() & build_environment({**given, "MORROW_FITS_URL": "file:///fits"}).keys()
    written = subprocess.run(
        python_command("-c", WRITE_IN_A_CHILD, url), env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert written == "weights"


def test_a_store_that_does_not_answer_is_said_once_and_reached_again(
    s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    objects = Objects(f"s3://made-later-{tmp_path.name.replace('_', '-')}?endpoint={s3}")
    with capture_logs() as lines:
        for _ in range(5):
            with pytest.raises(ObjectStoreAway, match=r"cannot be used: .*404"):
                objects.identity()
        assert httpx.put(f"{s3}/made-later-{tmp_path.name.replace('_', '-')}").is_success
        objects._rest_until = 0.0
        digest = objects.write(b"weights")
    assert objects.read(digest) == b"weights"
    assert [line["event"] for line in lines] == ["object_store.away", "object_store.reached"]


def test_missing_certificates_are_named_if_the_store_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    objects = Objects(f"s3://fits?endpoint=https://127.0.0.1:{free_port()}", LOGIN)
    with pytest.raises(ObjectStoreAway, match="set SSL_CERT_FILE"):
        objects.identity()
