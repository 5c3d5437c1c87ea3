"""`morrow doctor`: what this machine and its settings lack."""
