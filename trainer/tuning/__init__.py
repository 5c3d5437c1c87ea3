"""The search for a task's recipe: spaces, sampler, trials."""
