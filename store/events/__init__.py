"""The event store: rows written once and corrected, read back as columns as of a moment, and erased on request."""
