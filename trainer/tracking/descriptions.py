"""Descriptions of versions and runs for MLflow's pages: a version's content, its validity, and why it was released."""

from collections.abc import Callable, Sequence

from contracts.clock import format_duration, format_moment
from contracts.manifest import Manifest
from contracts.task import Task
from contracts.verdict import Decision

# The sentence of each rule that was met, unless the decision has a reason of its own.
_MET: dict[str, Callable[[Decision], str]] = {
    "min_rows": lambda one: f"{one.value:,.0f} rows to fit, of at least {one.threshold:,.0f}",
    "classes": lambda one: f"{one.value:.0f} classes among them",
    "min_pairs": lambda one: f"every age is compared on at least {one.threshold:.0f} windows",
    "horizon": lambda one: f"the error matrix validates {_windows(one.value)}",
    "newest_cutoff": lambda _: "no newer cutoff is released",
    "newest_window": lambda _: "the newest window is not suspect",
    "withheld_rows": lambda _: "its error on withheld rows is not clearly larger than that of the champion before it",
    "override": lambda _: "an admin requested it",
}


def describe_version(manifest: Manifest, decisions: Sequence[Decision]) -> str:
    """Markdown: what the version predicts, its validity and errors, why it was released, and how to call it."""
    task = manifest.parse_task()
    return "\n\n".join((_what(task, manifest), _how_long(task, manifest), _why(decisions), _how_to_ask(task)))


def describe_cycle(task: str, cutoff: int, verdict: str) -> str:
    """The text above a run: its cycle, and how it ended."""
    return (
        f"One cycle of **{task}**: everything that was known by {format_moment(cutoff)}. "
        f"Runs below it are fits of single origins.\n\n{verdict}"
    )


def _what(task: Task, manifest: Manifest) -> str:
    kind = f"one of {len(manifest.classes)} classes" if manifest.classes else "a number and its scale"
    seeds = "one network" if len(manifest.seeds) == 1 else f"{len(manifest.seeds)} networks, averaged"
    features = ", ".join(feature.name for feature in task.features)
    return (
        f"**{task.name}** predicts {task.target.name} ({kind}) at a moment, from {features}. "
        f"It is {seeds}, fitted by {task.training.method} to the {manifest.num_rows:,} rows from "
        f"{format_moment(manifest.trained_from)} that were known by {format_moment(manifest.cutoff)}."
    )


def _how_long(task: Task, manifest: Manifest) -> str:
    bound = (
        f"Valid until **{format_moment(manifest.valid_until)}**: {_windows(manifest.horizon)} of "
        f"{format_duration(manifest.window)} after its cutoff, unless an error above its limit ends that earlier."
    )
    rows = [
        f"| {age.age} | {age.mean:.4g} | {age.low:.4g} to {age.high:.4g} | {age.limit:.4g} |" for age in manifest.ages
    ]
    heading = f"| age | {task.error_name.replace('_', ' ')} | 90 % band of one window | limit |"
    return "\n".join((bound, "", heading, "| --- | --- | --- | --- |", *rows))


def _why(decisions: Sequence[Decision]) -> str:
    said = [_say(one) for one in decisions]
    return "Released because\n\n" + "\n".join(f"* {line}" for line in said)


def _say(decision: Decision) -> str:
    if decision.reason is not None:
        return f"{decision.rule.replace('_', ' ')}: {decision.reason}"
    return _MET[decision.rule](decision)


def _how_to_ask(task: Task) -> str:
    return f'```python\nmlflow.pyfunc.load_model("models:/{task.name}@champion").predict(frame)\n```'


def _windows(count: float | None) -> str:
    return "one window" if count == 1 else f"{count:.0f} windows"
