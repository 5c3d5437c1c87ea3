"""`python -m service`: the API, set up by the environment."""

if __name__ == "__main__":
    # Each of several workers reads this file anew, and is to import what it needs when it needs it.
    from service.settings import ServiceSettings
    from service.workers import serve

    serve(ServiceSettings())
