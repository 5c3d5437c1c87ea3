"""The search for a task's recipe: its space, its sampler, its trials."""
