"""Other methods, fitted beside ours while the trainer is idle. They are scored and never served."""
