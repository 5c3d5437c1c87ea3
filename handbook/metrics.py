"""The page of metrics, from the metrics registry of an app with a follower."""

from pathlib import Path

from handbook.tables import code, table
from service.database import Store
from service.gauges import StateGauges
from service.metrics import Metrics
from service.models.follower import Follower
from service.server.worker_heartbeats import WorkerHeartbeats
from service.settings import ServiceSettings
from store.engine import make_engine

_NO_DATABASE = "postgresql+psycopg://nobody@127.0.0.1:9/none"  # no query is sent


def metrics_page() -> str:
    """Every metric with its kind, labels and help, sorted by name."""
    rows = sorted((code(_name(name, kind)), kind, labels, text) for name, kind, labels, text in _families())
    return (
        "# Metrics\n\n"
        "`GET /metrics` gives these in Prometheus' text format; it needs any key, unless `MORROW_PUBLIC` opens it. No "
        "label takes a value that a client chooses. Any one of several workers answers for all. A gauge of a task is "
        "absent until it has a value.\n\n"
        f"{table(('metric', 'kind', 'labels', 'meaning'), rows)}"
    )


def _families() -> list[tuple[str, str, str, str]]:
    settings = ServiceSettings(database_url=_NO_DATABASE, home=Path("/nonexistent"))
    metrics = Metrics()
    store = Store(make_engine(_NO_DATABASE), places=1, seconds=1, queue_size=1)
    follower = Follower(settings, store, metrics)
    metrics.registry.register(StateGauges(follower, WorkerHeartbeats(settings, follower, metrics)))
    counted = {each.describe()[0].name: each for each in vars(metrics).values() if hasattr(each, "describe")}
    families = []
    for family in metrics.registry.collect():
        labels = getattr(counted.get(family.name, family), "_labelnames", ())
        families.append((family.name, family.type, ", ".join(code(label) for label in labels), family.documentation))
    follower.close()
    store.close()
    return families


def _name(name: str, kind: str) -> str:
    """The name in queries: the format adds a suffix to a counter."""
    return f"{name}_total" if kind == "counter" else name
