"""Tables of measured results, printed from `benchmarks/results/` into the pages that ask for them."""
