"""`morrow demo`: weeks of real flights, answered by GI and compared with its rivals."""
