"""Training processes: how they start, stay warm, are given jobs, and carry them out."""
