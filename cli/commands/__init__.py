"""One file for each command of `morrow` that speaks to the API or the store."""
