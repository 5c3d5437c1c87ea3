"""The description of the API at /openapi.json, written from what validates requests."""
