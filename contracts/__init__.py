"""What trainer and service must agree on: words, tables, the error matrix and the released model's promise.

Nothing here imports torch, mlflow, fastapi, apscheduler or pandas; a thing belongs here only if changing
it needs both sides to agree.
"""
