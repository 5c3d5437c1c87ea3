"""The check of the object store that trainers share kept fits through."""

from collections.abc import Iterator
from importlib.util import find_spec

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, fail, ok, warn
from contracts.shown import say_count
from store.engine import make_engine
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
    from store.errors import ObjectLost, ObjectStoreAway
    from store.objects import Objects

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
            counts = count_fits(connection, store)
    except SQLAlchemyError:
        return
    finally:
        engine.dispose()
    if counts.num_lost:
        words = f"{counts.num_lost} of {counts.num_here} are lost"
        yield warn(_SUBJECT, words, "none needed: a trainer shares or fits them again")
    if counts.num_elsewhere:
        fits = say_count(counts.num_elsewhere, "fit")
        words = f"another store holds {fits} of this database, unseen by trainers with this one"
        yield warn(_SUBJECT, words, "set the same MORROW_FITS_URL for all trainers")
    if not counts.num_lost and not counts.num_elsewhere:
        yield ok(_SUBJECT, f"{counts.num_here} are shared")
