"""Sealed events: rows of old windows, moved out of PostgreSQL into Parquet files in an object store.

Only events with a single revision are sealed, and a sealed row never changes. Whatever touches an event, such as a
correction, a resend or an erasure, first brings its row back to the table, where everything goes on as before. So the
table wins, and no statement knows more than one form of an event.
"""
