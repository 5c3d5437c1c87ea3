"""PostgreSQL's tables, and the only code that writes SQL: events, tasks, cycles, releases, API keys.

Functions take a `Connection`; only the outermost caller begins a transaction.
"""
