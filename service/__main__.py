"""`python -m service`: the API, set up by the environment."""

if __name__ == "__main__":
    # Each of several workers runs this file again under another name, and must import modules only when it needs them.
    from contracts.runtime.entry import begin, exit_with_sentence

    begin()
    from service.settings import ServiceSettings
    from service.workers import serve

    with exit_with_sentence():
        serve(ServiceSettings())
