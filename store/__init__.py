"""What PostgreSQL holds, and the only code that writes SQL against it: events, tasks, cycles, releases, API keys.

Functions take a `Connection`; only the outermost caller begins a transaction.
"""
