"""MLflow: runs, the model registry, flavours and retention."""
