"""The registry of versions, MLflow, as the service reads it: models, their files and aliases. It never loads mlflow."""
