"""What runs and versions carry in MLflow beside figures and files: the names of their tags."""

CUTOFF_TAG = "morrow.cutoff"
CYCLE_TAG = "morrow.cycle"
LEASE_TAG = "morrow.lease"
ORIGIN_TAG = "morrow.origin"
MANIFEST_TAG = "morrow.manifest"
REASON_TAG = "morrow.reason"
STATE_TAG = "morrow.state"
VERDICT_TAG = "morrow.verdict"
# What MLflow's own pages read: the words above a run, and the run that it is part of.
NOTE_TAG = "mlflow.note.content"
PARENT_TAG = "mlflow.parentRunId"
