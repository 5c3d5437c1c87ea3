"""One cycle from reading events to the release, with its records in the ledger and in MLflow."""
