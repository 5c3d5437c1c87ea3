"""Prometheus counters of one app, in a registry of its own. No label takes a value that a client chooses.

Any worker answers a scrape for all of them. Counters are summed over the workers, dead ones included, so none ever
falls. Gauges are in `service.gauges`.
"""

from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
# The route of answers given before the route is known, such as 401 and 404.
NO_ROUTE = "none"
# Why an answer is missing in the log: too many waited, PostgreSQL refused it, its file was damaged, its task is gone.
DROPPED = ("queue_full", "refused", "damaged", "task_deleted")
_PREDICT_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The counters of one app; several workers keep theirs in files of `folder`, and each reads all of them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        counted = self.registry if folder is None else CollectorRegistry()
        if folder is not None:
            MultiProcessCollector(self.registry, str(folder))  # type: ignore[no-untyped-call]
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram | None]] = {}
        self.requests = Counter("morrow_requests", "Answered requests", ["method", "route", "status"], registry=counted)
        self.predict_seconds = Histogram(
            "morrow_predict_seconds",
            "Seconds from request to answer of /predict",
            ["method"],
            buckets=_PREDICT_SECONDS,
            registry=counted,
        )
        self.events = Counter("morrow_events", "Rows sent to /events", ["outcome"], registry=counted)
        self.labels = Counter(
            "morrow_labels", "Labels that came apart from their events", ["outcome"], registry=counted
        )
        self.not_finite = Counter(
            "morrow_answers_not_finite", "Runs of a graph without a finite answer", ["task"], registry=counted
        )
        self.unseen = Counter(
            "morrow_unseen_categories",
            "Answers to a category that the fit of the version does not know",
            ["task", "feature"],
            registry=counted,
        )
        self.predictions_logged = Counter(
            "morrow_predictions_logged", "Answers stored in the log of predictions", registry=counted
        )
        self.predictions_dropped = Counter(
            "morrow_predictions_dropped", "Answers that are missing in the log", ["reason"], registry=counted
        )
        for reason in DROPPED:
            self.predictions_dropped.labels(reason)
        self.follower_errors = Counter(
            "morrow_follower_errors", "Failed polls of registry, artefact or disk", ["kind"], registry=counted
        )
        self.swaps = Counter("morrow_model_swaps", "Versions swapped in", ["task"], registry=counted)
        self.model_loads = Counter(
            "morrow_model_loads", "Versions read from disk because they were asked for", registry=counted
        )
        self.stale_workers = Counter(
            "morrow_stale_workers", "Workers that ended because they fell behind another", registry=counted
        )

    def count_unseen(self, task: str, features: Iterable[str]) -> None:
        """Count the category features of answers whose value the fit does not know."""
        for feature, count in Counts(features).items():
            self.unseen.labels(task, feature).inc(count)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer by method, route template and status; of /predict, also the seconds it took."""
        method = method if method in METHODS else "other"
        series = self._series.get((method, route, status))
        if series is None:
            series = self._series[method, route, status] = self._find_series(method, route, status)
        counter, histogram = series
        counter.inc()
        if histogram is not None:
            histogram.observe(seconds)

    def _find_series(self, method: str, route: str, status: int) -> tuple[Counter, Histogram | None]:
        """The series of an answer; prometheus_client takes longer to find one than to count."""
        counter = self.requests.labels(method, route, str(status))
        return counter, self.predict_seconds.labels(method) if route == "/predict" else None


class CurrentTasks(Collector):
    """The metrics of a registry without the series of tasks that are not served any more.

    Counters of several processes cannot be removed, because their files are shared. Hooks are about no single task, and
    left out unless `with_hooks` is set.
    """

    def __init__(
        self, registry: CollectorRegistry, tasks: Callable[[], Collection[str]], *, with_hooks: bool = True
    ) -> None:
        self._registry = registry
        self._tasks = tasks
        self._with_hooks = with_hooks

    def collect(self) -> Iterable[Metric]:
        known = {None, *self._tasks()}
        for family in self._registry.collect():
            family.samples = [
                one
                for one in family.samples
                if one.labels.get("task") in known and (self._with_hooks or "hook" not in one.labels)
            ]
            yield family
