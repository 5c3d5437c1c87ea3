"""Hooks: the events that they send, how these are signed, and which receivers may be asked."""
