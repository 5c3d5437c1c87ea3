"""Health of the MLflow server in its container: `python mlflow_health.py ADDRESS HOST` exits with 0 if it is usable.

It asks MLflow's API under the host name that its clients use. `/health` answers although the API refuses that name. An
answer that asks for a password comes from behind that check, so it is healthy too. No proxy of the environment is used.
"""

import sys
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

PATH = "/api/2.0/mlflow/registered-models/search?max_results=1"


def examine(address: str, host: str) -> str | None:
    """What is wrong, in a sentence; None if the server is usable."""
    try:
        build_opener(ProxyHandler({})).open(Request(f"{address}{PATH}", headers={"Host": host}), timeout=4)  # noqa: S310 an address of ours, by HTTP
    except HTTPError as error:
        if error.code == 401:
            return None
        return f"MLflow answers {host} with {error.code}: {error.read(300).decode(errors='replace')}"
    except OSError as error:
        return f"MLflow does not answer: {error}"
    return None


if __name__ == "__main__":
    sys.exit(examine(*sys.argv[1:3]))
