"""What a process knows of the tasks: their states in the store, read again as they change."""
