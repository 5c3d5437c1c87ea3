"""Events of hooks on their way to receivers, next to the scheduler's tick."""
