"""The import of CSV, NDJSON and Parquet files through POST /events."""
