"""Inference protocols of other servers, answered by the versions, rules and limits of POST /predict."""
