"""POST and PUT /events."""
