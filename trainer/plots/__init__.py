"""Pictures of the error matrix and of a model's answers."""
