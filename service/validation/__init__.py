"""The rules of a row, compiled from its task, and the fast decoders in front of them."""
