"""The names of the tags of runs and versions in MLflow."""

CUTOFF_TAG = "morrow.cutoff"
CYCLE_TAG = "morrow.cycle"
LEASE_TAG = "morrow.lease"
ORIGIN_TAG = "morrow.origin"
MANIFEST_TAG = "morrow.manifest"
REASON_TAG = "morrow.reason"
STATE_TAG = "morrow.state"
VERDICT_TAG = "morrow.verdict"
VERSION_TAG = "morrow.version"
# The id of a task, at the model and the experiment of one that is or was renamed.
TASK_TAG = "morrow.task"
# Tags that MLflow's own pages read: the text above a run, and the run above it.
NOTE_TAG = "mlflow.note.content"
PARENT_TAG = "mlflow.parentRunId"
# How MLflow's pages open an experiment, and the kind that opens on its runs.
KIND_TAG = "mlflow.experimentKind"
KIND_OF_RUNS = "custom_model_development"
