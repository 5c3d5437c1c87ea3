-- Runs once, on an empty volume: MLflow keeps its tables apart from ours.
CREATE DATABASE mlflow;
