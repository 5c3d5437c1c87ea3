"""Prometheus metrics of one app, in a registry of its own. No label takes a value that a client chooses.

Any of several workers answers a scrape for all of them: counters are summed, dead workers' included, so that none ever
falls; what each worker says of itself is shown at its worst; and what the database says is shown once.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from service.models.follower import Follower
    from service.server.worker_heartbeats import Siblings

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_PREDICT_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The counters of one app; those of several workers are kept in files of `folder`, where each finds all."""

    def __init__(self, folder: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        counted = self.registry if folder is None else CollectorRegistry()
        if folder is not None:
            MultiProcessCollector(self.registry, str(folder))  # type: ignore[no-untyped-call]
        self.requests = Counter("morrow_requests", "Answered requests", ["method", "route", "status"], registry=counted)
        self.predict_seconds = Histogram(
            "morrow_predict_seconds",
            "Seconds from request to answer of /predict",
            ["method"],
            buckets=_PREDICT_SECONDS,
            registry=counted,
        )
        self.events = Counter("morrow_events", "Rows sent to /events", ["outcome"], registry=counted)
        self.not_finite = Counter(
            "morrow_answers_not_finite", "Runs of a graph without a finite answer", ["task"], registry=counted
        )
        self.follower_errors = Counter(
            "morrow_follower_errors", "Failed looks at registry, artefact or disk", ["kind"], registry=counted
        )
        self.swaps = Counter("morrow_model_swaps", "Versions swapped in", ["task"], registry=counted)
        self.stale_workers = Counter(
            "morrow_stale_workers", "Workers that ended because they fell behind another", registry=counted
        )

    def watch(self, follower: "Follower", siblings: "Siblings", now: Callable[[], float] = time.time) -> None:
        """Also tell, at each scrape, which versions answer and how following them goes."""
        self.registry.register(_Models(follower, siblings, now))


class _Models(Collector):
    """Gauges that are read off workers and follower at each scrape, so that no former version lingers."""

    def __init__(self, follower: "Follower", siblings: "Siblings", now: Callable[[], float]) -> None:
        self._follower = follower
        self._siblings = siblings
        self._now = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return [*self._workers(), *self._errors(), *self._cycles()]

    def _workers(self) -> Iterable[GaugeMetricFamily]:
        model = GaugeMetricFamily("morrow_model_info", "A version that answers", labels=["task", "version"])
        worker = GaugeMetricFamily(
            "morrow_worker_model_info", "The version that a worker answers with", labels=["pid", "task", "version"]
        )
        left = GaugeMetricFamily("morrow_valid_seconds", "Seconds until valid_until", labels=["task"])
        degraded = GaugeMetricFamily("morrow_registry_degraded", "1 while following fails", labels=["task"])
        database = GaugeMetricFamily("morrow_database_up", "1 while the database answers the follower")
        now = self._now()
        beats = self._siblings.beats(now)
        found = [(beat.pid, task, following) for beat in beats for task, following in beat.tasks.items()]
        versions = [(pid, task, seen.version) for pid, task, seen in found if seen.version is not None]
        for pid, task, version in versions:
            worker.add_metric([str(pid), task, version], 1)
        for task, version in sorted({(task, version) for _, task, version in versions}):
            model.add_metric([task, version], 1)
        for task in sorted({task for _, task, _ in found}):
            seen = [following for _, name, following in found if name == task]
            bounds = [following.valid_until for following in seen if following.valid_until is not None]
            if bounds:
                left.add_metric([task], min(bounds) / 1e6 - now)
            degraded.add_metric([task], any(following.is_degraded for following in seen))
        database.add_metric([], all(beat.database_answers for beat in beats))
        return model, worker, left, degraded, database

    def _errors(self) -> Iterable[GaugeMetricFamily]:
        expected = GaugeMetricFamily(
            "morrow_expected_error", "Mean error that the version promises at an age", labels=["task", "age"]
        )
        realised = GaugeMetricFamily(
            "morrow_realised_error", "Mean error of the version on the window of that age", labels=["task", "age"]
        )
        closed = GaugeMetricFamily("morrow_horizon_closed", "1 while a realised error closes it", labels=["task"])
        for task, forecaster in self._follower.forecasters.items():
            for age in forecaster.manifest.ages:
                expected.add_metric([task, str(age.age)], age.mean)
            standing = self._follower.standings.get(task)
            if standing is not None and standing.version == forecaster.version:
                for found in standing.realised:
                    realised.add_metric([task, str(found.age)], found.error)
                closed.add_metric([task], standing.closing is not None)
        return expected, realised, closed

    def _cycles(self) -> Iterable[GaugeMetricFamily]:
        since = GaugeMetricFamily(
            "morrow_seconds_since_release", "Seconds since a cycle released a version", labels=["task"]
        )
        better = GaugeMetricFamily(
            "morrow_better_method", "1 where a rival is clearly better than ours", labels=["task", "method"]
        )
        failed = GaugeMetricFamily("morrow_cycles_failed", "Cycles failed in a row, up to now", labels=["task"])
        held = GaugeMetricFamily("morrow_held", "1 while the newest cycle that ended is held", labels=["task"])
        window = GaugeMetricFamily(
            "morrow_window_seconds", "Seconds of a window of the version that answers", labels=["task"]
        )
        for task, forecaster in self._follower.forecasters.items():
            window.add_metric([task], forecaster.manifest.window / 1e6)
        for task, standing in self._follower.standings.items():
            if standing.released is not None:
                since.add_metric([task], self._now() - standing.released.at.timestamp())
            if standing.better_method is not None:
                better.add_metric([task, standing.better_method["method"]], 1)
            failed.add_metric([task], standing.num_failed)
            last = standing.last_ended
            held.add_metric([task], last is not None and last.state == "held")
        return since, better, failed, held, window


class CountRequests:
    """ASGI middleware: counts answers by method, route template and status, and times /predict."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            if route == "/predict":
                self._metrics.predict_seconds.labels(method).observe(time.perf_counter() - started)
