"""What trainer and service must agree on: tasks, moments, errors, failures, verdicts, and a released model's manifest.

Something belongs here only if a change to it needs both sides to agree. Nothing here does I/O beyond the files of an
artefact, and nothing imports torch, mlflow, fastapi, apscheduler or pandas.
"""
