"""How commands speak to the API, wait for it, and print what it says."""
