"""One cycle from the read to the release, and what it writes to the ledger and to MLflow on the way."""
