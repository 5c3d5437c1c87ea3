"""The log of answered predictions: ids, rows written by COPY, one row read, partitions by day."""
