"""Prometheus gauges: the versions that answer, whether following them works, and their cycles and errors.

Of the workers' own reports, the worst is shown; facts from the database are shown once.
"""

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from contracts.verdict import LimitCheck
from service.models.follower import Follower
from service.server.worker_heartbeats import ServedVersion, WorkerHeartbeats
from store.predictions.answer_scores import INSIDE_FIT


class StateGauges(Collector):
    """Gauges read from the workers and the follower at each scrape, so no old version stays in them.

    `now` gives seconds since the epoch.
    """

    def __init__(self, follower: Follower, heartbeats: WorkerHeartbeats, now: Callable[[], float] = time.time) -> None:
        self._follower = follower
        self._heartbeats = heartbeats
        self._now = now

    def collect(self) -> Iterable[Metric]:
        of_tasks = (*self._workers(), *self._errors(), *self._cycles(), *self._labels(), *self._answers())
        return [*of_tasks, *self._hooks()]

    def _workers(self) -> Iterable[GaugeMetricFamily]:
        model = GaugeMetricFamily("morrow_model_info", "A version that answers", labels=["task", "version"])
        worker = GaugeMetricFamily(
            "morrow_worker_model_info", "The version that a worker answers with", labels=["pid", "task", "version"]
        )
        left = GaugeMetricFamily("morrow_valid_seconds", "Seconds until valid_until", labels=["task"])
        degraded = GaugeMetricFamily("morrow_registry_degraded", "1 while following fails", labels=["task"])
        database = GaugeMetricFamily("morrow_database_up", "1 while the database answers the follower")
        now = self._now()
        heartbeats = self._heartbeats.all(now)
        found = [(one.pid, task, served) for one in heartbeats for task, served in one.tasks.items()]
        versions = [(pid, task, served.version) for pid, task, served in found if served.version is not None]
        for pid, task, version in versions:
            worker.add_metric([str(pid), task, version], 1)
        for task, version in sorted({(task, version) for _, task, version in versions}):
            model.add_metric([task, version], 1)
        served_by_task: dict[str, list[ServedVersion]] = {}
        for _, task, served in found:
            served_by_task.setdefault(task, []).append(served)
        for task, seen in sorted(served_by_task.items()):
            bounds = [served.valid_until for served in seen if served.valid_until is not None]
            if bounds:
                left.add_metric([task], min(bounds) / 1e6 - now)
            degraded.add_metric([task], any(served.is_degraded for served in seen))
        database.add_metric([], all(one.database_answers for one in heartbeats))
        return model, worker, left, degraded, database

    def _errors(self) -> Iterable[GaugeMetricFamily]:
        expected = GaugeMetricFamily(
            "morrow_expected_error", "Mean error that the version promises at an age", labels=["task", "age"]
        )
        realised = GaugeMetricFamily(
            "morrow_realised_error", "Mean error of the version on the window of that age", labels=["task", "age"]
        )
        closed = GaugeMetricFamily("morrow_horizon_closed", "1 while a realised error closes it", labels=["task"])
        excess = GaugeMetricFamily(
            "morrow_closing_error_ratio", "The error that closes a horizon, as a multiple of its limit", labels=["task"]
        )
        for task, forecaster in self._follower.forecasters.items():
            for age in forecaster.manifest.ages:
                expected.add_metric([task, str(age.age)], age.mean)
            task_state = self._follower.task_states.get(task)
            if task_state is not None and task_state.version == forecaster.version:
                for found in task_state.realised:
                    realised.add_metric([task, str(found.age)], found.error)
                closed.add_metric([task], task_state.closing is not None)
                check = None if task_state.closing is None else task_state.closing.verdict
                if isinstance(check, LimitCheck) and check.threshold > 0:
                    excess.add_metric([task], check.value / check.threshold)
        return expected, realised, closed, excess

    def _cycles(self) -> Iterable[GaugeMetricFamily]:
        since = GaugeMetricFamily(
            "morrow_seconds_since_release", "Seconds since a cycle released a version", labels=["task"]
        )
        better = GaugeMetricFamily(
            "morrow_better_method", "1 if a rival is clearly better than ours", labels=["task", "method"]
        )
        paused = GaugeMetricFamily("morrow_paused", "1 while no cycle of the task may begin", labels=["task"])
        failed = GaugeMetricFamily("morrow_cycles_failed", "Cycles failed in a row, up to now", labels=["task"])
        held = GaugeMetricFamily("morrow_held", "1 while the cycle that ended last is held", labels=["task"])
        window = GaugeMetricFamily(
            "morrow_window_seconds", "Seconds of a window of the version that answers", labels=["task"]
        )
        for task, forecaster in self._follower.forecasters.items():
            window.add_metric([task], forecaster.manifest.window / 1e6)
        for task, task_state in self._follower.task_states.items():
            paused.add_metric([task], task in self._follower.paused)
            if task_state.better_method is not None:
                better.add_metric([task, task_state.better_method.method], 1)
            if task in self._follower.paused:
                continue  # nobody expects cycles of it
            if task_state.released is not None:
                since.add_metric([task], self._now() - task_state.released.at.timestamp())
            failed.add_metric([task], task_state.num_failed)
            last = task_state.last_ended
            held.add_metric([task], last is not None and last.state == "held")
        return since, better, paused, failed, held, window

    def _labels(self) -> Iterable[GaugeMetricFamily]:
        unlabelled = GaugeMetricFamily("morrow_unlabelled_events", "Events that wait for their label", labels=["task"])
        waiting = GaugeMetricFamily("morrow_waiting_labels", "Labels that wait for their event", labels=["task"])
        for task, task_state in self._follower.task_states.items():
            unlabelled.add_metric([task], task_state.num_unlabelled)
            waiting.add_metric([task], task_state.num_waiting)
        return unlabelled, waiting

    def _hooks(self) -> Iterable[Metric]:
        delivered = CounterMetricFamily(
            "morrow_hook_delivered", "Events that the receiver of a hook has taken", labels=["hook"]
        )
        failed = CounterMetricFamily("morrow_hook_failed", "Attempts to send an event that failed", labels=["hook"])
        waiting = GaugeMetricFamily("morrow_hook_waiting", "Events that wait to be sent", labels=["hook"])
        dead = GaugeMetricFamily("morrow_hook_dead", "Events that were given up: dead letters", labels=["hook"])
        for hook in self._follower.snapshot.hooks:
            delivered.add_metric([hook.name], hook.num_delivered)
            failed.add_metric([hook.name], hook.num_failed)
            waiting.add_metric([hook.name], hook.num_waiting)
            dead.add_metric([hook.name], hook.num_dead)
        return delivered, failed, waiting, dead

    def _answers(self) -> Iterable[GaugeMetricFamily]:
        by_age = ["task", "age"]
        logged = GaugeMetricFamily(
            "morrow_answers_logged", "Answers of the version that are in the log, by age", labels=by_age
        )
        labelled = GaugeMetricFamily("morrow_answers_labelled", "Those of them that have their label", labels=by_age)
        delay = GaugeMetricFamily(
            "morrow_answers_label_delay_seconds",
            "Seconds from the moment that was asked about to the label",
            labels=[*by_age, "quantile"],
        )
        figures = {
            "error": GaugeMetricFamily("morrow_answers_error", "Mean error of labelled answers", labels=by_age),
            "expected_error": GaugeMetricFamily(
                "morrow_answers_expected_error", "Mean error that these answers expected", labels=by_age
            ),
            "coverage": GaugeMetricFamily(
                "morrow_answers_coverage", "Share of labels inside the interval or set given", labels=by_age
            ),
            "promised_coverage": GaugeMetricFamily(
                "morrow_answers_promised_coverage", "Mean coverage that these answers promised", labels=by_age
            ),
            "calibration_error": GaugeMetricFamily(
                "morrow_answers_calibration_error", "Expected calibration error of labelled answers", labels=by_age
            ),
        }
        for task, task_state in self._follower.task_states.items():
            for age, quality in task_state.answered:
                if age == INSIDE_FIT:
                    continue
                labels = [task, str(age)]
                logged.add_metric(labels, quality.num_answers)
                labelled.add_metric(labels, quality.num_labelled)
                for name, family in figures.items():
                    if (value := getattr(quality, name)) is not None:
                        family.add_metric(labels, value)
                for quantile, seconds in (("0.5", quality.label_delay_median), ("0.9", quality.label_delay_p90)):
                    if seconds is not None:
                        delay.add_metric([*labels, quantile], seconds)
        return logged, labelled, delay, *figures.values()
