"""Is a model any good: skill against its rivals, values that are far from all others, and what to do about them."""
