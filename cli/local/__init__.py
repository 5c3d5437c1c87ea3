"""`morrow up`: PostgreSQL, MLflow, API and trainer as processes of this machine."""
