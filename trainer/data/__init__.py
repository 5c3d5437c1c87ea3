"""Events as a fit reads them: the snapshot, the encoder, and the forms of numbers and labels."""
