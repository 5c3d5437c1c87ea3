"""Addresses of object stores: what is taken, what is refused in a sentence, and which login goes with each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runtime.object_stores import http_address, login_variables, provider_of, read_store_url
from contracts.runtime.surroundings import build_environment


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("file:///var/lib/fits/", "file:///var/lib/fits"),
        ("S3://bucket", "s3://bucket"),
        ("s3://bucket//a//b/", "s3://bucket/a/b"),
        ("s3://bucket/a?endpoint=http://minio:9000", "s3://bucket/a?endpoint=http://minio:9000"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_addresses_are_read_as_they_are_meant(text: str, meant: str) -> None:
    assert read_store_url(text) == meant
    assert read_store_url(meant) == meant


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/var/lib/fits", "has no scheme: write file:///FOLDER"),
        ("fits", "has no scheme"),
        ("ftp://host/fits", "begins with ftp://: write file:///FOLDER"),
        ("file://fits", "names no folder"),
        ("file:///", "names no folder"),
        ("s3://", "names no bucket: write s3://BUCKET/PREFIX"),
        ("s3://Bucket/a", "in lower case"),
        ("gs://bucket?endpoint=http://x", "only s3:// has options"),
        ("s3://bucket?endpiont=http://x", "has the option 'endpiont'"),
        ("s3://bucket?endpoint=minio:9000", "write endpoint=https://HOST:PORT"),
    ],
)
def test_a_wrong_address_is_refused_with_a_remedy(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_store_url(text)


def test_a_login_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="AWS_ACCESS_KEY_ID") as refused:
        read_store_url("s3://AKIA:secret@bucket/a")
    assert "secret" not in str(refused.value)


@given(st.text())
def test_any_text_is_taken_or_refused_with_a_sentence(text: str) -> None:
    for scheme in ("", "s3://", "file:///", "gs://", "az://"):
        try:
            url = read_store_url(scheme + text)
        except ValueError:
            continue
        assert provider_of(url)
        assert login_variables(url) is not None


def test_a_folder_needs_no_server_and_an_endpoint_is_asked_in_place_of_amazons() -> None:
    assert http_address("file:///fits", {}) is None
    assert http_address("s3://bucket", {"AWS_REGION": "eu-west-1"}) == "https://s3.eu-west-1.amazonaws.com"
    assert http_address("s3://bucket?endpoint=http://minio:9000", {}) == "http://minio:9000"
    assert http_address("s3://bucket", {"AWS_ENDPOINT_URL": "http://minio:9000"}) == "http://minio:9000"


def test_a_child_learns_the_proxy_of_the_store_and_that_the_registry_needs_none() -> None:
    given_by_the_machine = {
        "MORROW_MLFLOW_URL": "http://mlflow:5000",
        "MORROW_FITS_URL": "s3://bucket/fits",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    built = build_environment(given_by_the_machine)
    assert built["https_proxy"] == "http://proxy:3128"
    assert built["no_proxy"] == "mlflow"
