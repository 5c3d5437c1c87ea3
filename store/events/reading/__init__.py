"""Reading events as arrays, as they were known at a cutoff: what fits and their scores are made from."""
