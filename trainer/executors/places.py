"""The places where fits are kept: trainers of one place can carry out each other's units."""

import socket

from trainer.settings import TrainerSettings
from trainer.sharing.errors import ObjectStoreAway
from trainer.sharing.objects import Objects


def find_place(settings: TrainerSettings, objects: Objects | None) -> str:
    """What names the place where a trainer keeps fits: the object store, or the home on this machine."""
    try:
        if objects is not None:
            return f"store {objects.identity()}"
    except ObjectStoreAway:  # which is logged where it was found
        pass
    return f"home {socket.gethostname()}:{settings.home.resolve()}"
