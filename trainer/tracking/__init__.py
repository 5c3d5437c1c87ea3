"""The only code that speaks to MLflow: runs, the model registry, flavours, retention."""
