"""`morrow predict`: the rows of a file as questions, and their answers in another file."""
