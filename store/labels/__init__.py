"""Labels apart from their events: events that wait for a label, and labels that wait for an event."""
