"""What an answer of MLflow that is no success means, in the same words for trainer, API, `morrow up` and doctor.

`/health` and `/version` answer although MLflow refuses every request to its API, so health is asked of the API.
"""

# Asks the registry and its database for one row.
PROBE = "/api/2.0/mlflow/registered-models/search?max_results=1"
_REFUSED_HOST = "Invalid Host header"


def explain_status(status: int, body: str) -> str:
    """A sentence with the remedy for a status other than 200."""
    if status == 403 and _REFUSED_HOST in body:
        return (
            "MLflow refuses the host name in MORROW_MLFLOW_URL (403): start `mlflow server` with --allowed-hosts that "
            "lists it, such as --allowed-hosts 'mlflow:5000,localhost:*'."
        )
    if status == 403:
        return "MLflow refuses the request (403): give its user the permission to write, or ask another server."
    if status == 401:
        return (
            "MLflow asks for a password (401): name the user in MORROW_MLFLOW_URL=http://USER@…, and the file of the "
            "password in MORROW_MLFLOW_PASSWORD_FILE."
        )
    if status == 407:
        return "The proxy before MLflow asks for a password (407): write http://USER:PASSWORD@… in its variable."
    return f"The registry answers with status {status}."
