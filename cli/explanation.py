"""Errors of any library as a sentence: what is wrong, with the address or file, and what to do about it.

The libraries are looked up among those that are loaded: an error of one that is not cannot have been raised.
"""

import sys
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS

from contracts.runtime.entry import as_sentence

# PostgreSQL's codes for a column and for a table that does not exist.
_SCHEMA_FAULTS = ("42703", "42P01")
_FOLDER_FAULTS = (EACCES, EPERM, EROFS, ENOSPC, EDQUOT)


def explain(error: Exception) -> str | None:
    """The sentence for a person; None if the error is a bug, which keeps its traceback."""
    if (sentence := as_sentence(error) or _explain_database(error) or _explain_server(error)) is not None:
        return sentence
    if isinstance(error, OSError) and error.errno in _FOLDER_FAULTS and error.filename is not None:
        return (
            f"{error.filename} cannot be used ({error.strerror}): correct its permissions, free some space, "
            "or set MORROW_HOME to a folder that can be written to."
        )
    return None


def _explain_database(error: Exception) -> str | None:
    if "sqlalchemy" not in sys.modules:
        return None
    from sqlalchemy.exc import DBAPIError

    if not isinstance(error, DBAPIError):
        return None
    if getattr(error.orig, "sqlstate", None) in _SCHEMA_FAULTS:
        lacking = str(error.orig).splitlines()[0]
        return f"The database is not that of this version of Morrow ({lacking}): run `morrow migrate`."
    from contracts.runtime.settings import SharedSettings
    from store.outages import name_outage
    from store.refusals import explain_refusal

    url = SharedSettings().database_url
    if url is not None and (refusal := explain_refusal(error, url)) is not None:
        return str(refusal)
    outage = name_outage(error)
    return None if outage is None else f"{outage.reason} `morrow doctor` examines it."


def _explain_server(error: Exception) -> str | None:
    if "httpx" not in sys.modules:
        return None
    import httpx

    if not isinstance(error, httpx.TransportError):
        return None
    try:
        place = f"The server at {error.request.url.copy_with(userinfo=b'')}"
    except RuntimeError:  # it was raised before there was a request
        place = "A server"
    return f"{place} does not answer ({error}): start it, or correct MORROW_URL or MORROW_MLFLOW_URL."
