"""Which addresses of MLflow name a file behind its artefact proxy."""

import pytest

from contracts.artifact_proxy import proxied_path, proxy_address
from contracts.errors import ArtefactRefused


def test_a_proxied_address_becomes_a_quoted_path_of_the_proxy() -> None:
    path = proxied_path("mlflow-artifacts:/1/a run/artifacts")
    assert path == "1/a%20run/artifacts"
    assert proxy_address(f"{path}/model.onnx").endswith("/mlflow-artifacts/artifacts/1/a%20run/artifacts/model.onnx")
    assert proxied_path("mlflow-artifacts://localhost:5000/1/artifacts") == "1/artifacts"


@pytest.mark.parametrize("uri", ["s3://bucket/1", "/var/mlruns/1", "file:///1", ""])
def test_an_address_elsewhere_is_refused_with_what_to_do(uri: str) -> None:
    with pytest.raises(ArtefactRefused, match="--serve-artifacts"):
        proxied_path(uri)


@pytest.mark.parametrize("uri", ["mlflow-artifacts:/", "mlflow-artifacts:/../etc", "mlflow-artifacts:/a//b"])
def test_a_path_that_is_not_plain_is_refused(uri: str) -> None:
    with pytest.raises(ArtefactRefused, match="plain path"):
        proxied_path(uri)
