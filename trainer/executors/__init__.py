"""Where the units of a cycle are carried out: in its own process, in others of the trainer, or on a Ray cluster."""
