"""The checks of `morrow doctor`: machine, database, MLflow and API."""
