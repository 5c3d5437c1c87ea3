"""Keys of the API in one process: which there are, and what those for some tasks may ask."""
