"""Hooks, the outbox of their events, and the ends of validity that time alone brings."""
