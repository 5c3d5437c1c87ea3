"""What tests of cycles share besides the stores."""

import pytest

from trainer.registry import Registry


@pytest.fixture
def registry(mlflow_url: str) -> Registry:
    """Our side of the session's MLflow server."""
    return Registry(mlflow_url)
