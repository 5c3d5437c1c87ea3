"""Routes about the events that are stored: one and a page of them, imports, erasures, and the fits that read them."""
