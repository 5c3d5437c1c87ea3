"""The object store that the settings of a trainer name."""

from store.objects import Objects
from trainer.settings import TrainerSettings


def open_objects(settings: TrainerSettings) -> Objects | None:
    """The object store that the settings name; None if they name none."""
    return None if settings.fits_url is None else Objects(settings.fits_url)
