"""Kept fits that trainers share: their objects, the copies of them on this machine, and what is cleared away."""
