"""Rows of files as events: which column is which value, how each is read, and what is wrong with a row."""
