"""Rows of CSV, JSON and Parquet files on their way to POST /events."""
