"""Rivals: other methods, fitted while the trainer is idle. They are scored and never served."""
