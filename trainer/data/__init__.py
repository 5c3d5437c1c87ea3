"""Events as a fit reads them: one reading of the store, the encoder, and the forms of numbers and labels."""
