"""`python -m service`: one API process, set up by the environment."""

from service.app import serve
from service.settings import ServiceSettings

if __name__ == "__main__":
    serve(ServiceSettings())
