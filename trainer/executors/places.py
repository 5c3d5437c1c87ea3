"""The places where fits are kept: trainers of one place can carry out each other's units."""

import socket

from trainer.settings import TrainerSettings


def name_place(settings: TrainerSettings, store: str | None) -> str:
    """The place of a trainer's fits: the object store of this identity, else the home on this machine."""
    return f"home {socket.gethostname()}:{settings.home.resolve()}" if store is None else f"store {store}"
