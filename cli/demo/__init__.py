"""`morrow demo`: six weeks of real flights, our method and its rivals."""
