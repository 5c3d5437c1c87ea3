"""`python -m service`: the API, set up by the environment."""

if __name__ == "__main__":
    # Each of several workers runs this file again under another name, and must import modules only when it needs them.
    from service.settings import ServiceSettings
    from service.workers import serve

    serve(ServiceSettings())
