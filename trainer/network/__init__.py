"""The time-conditioned cohort network, its losses, and the loop that trains it."""
