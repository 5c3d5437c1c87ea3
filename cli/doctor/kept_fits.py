"""The check of the object store that trainers share kept fits through."""

from collections.abc import Iterator
from importlib.util import find_spec

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, fail, ok, warn
from contracts.shown import say_count
from store.database import make_engine
from store.kept_fits import count_fits
from trainer.settings import TrainerSettings

_SUBJECT = "kept fits"


def examine_kept_fits(settings: TrainerSettings) -> Iterator[Finding]:
    """Whether the object store takes, returns and deletes an object, and how many fits it and others hold.

    Nothing if trainers share no fits.
    """
    if settings.fits_url is None:
        return
    if find_spec("obstore") is None:
        yield ok(_SUBJECT, "obstore is not installed: no trainer runs here")
        return
    from trainer.sharing.errors import ObjectLost, ObjectStoreAway
    from trainer.sharing.objects import Objects

    objects = Objects(settings.fits_url, is_logged=False)
    try:
        store = objects.identity()
        objects.check()
    except (ObjectStoreAway, ObjectLost) as error:
        yield fail(_SUBJECT, str(error).removesuffix("."), "correct MORROW_FITS_URL, or the login in its variables")
        return
    yield ok(_SUBJECT, f"{settings.fits_url} takes, returns and deletes objects")
    if settings.database_url is not None:
        yield from _examine_ledger(settings.database_url, store)


def _examine_ledger(database_url: str, store: str) -> Iterator[Finding]:
    """How many fits the ledger names; nothing if the database does not answer, which another finding says."""
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            num_here, num_lost, num_elsewhere = count_fits(connection, store)
    except SQLAlchemyError:
        return
    finally:
        engine.dispose()
    if num_lost:
        yield warn(_SUBJECT, f"{num_lost} of {num_here} are lost", "none needed: a trainer shares or fits them again")
    if num_elsewhere:
        words = (
            f"another store holds {say_count(num_elsewhere, 'fit')} of this database, unseen by trainers with this one"
        )
        yield warn(_SUBJECT, words, "set the same MORROW_FITS_URL for all trainers")
    if not num_lost and not num_elsewhere:
        yield ok(_SUBJECT, f"{num_here} are shared")
