"""Rows held to the rules of a task without sending them, for a trial of an import and for an inferred task."""

from collections.abc import Sequence
from typing import Any

from cli.file_rows.rows import Row
from contracts.task import Task


def check_rows(batch: Sequence[Row], task: Task) -> list[dict[str, Any]]:
    """The results that POST /events would have for rows, as far as the task's rules decide them."""
    from service.validation.rules import Refusal, compile_rules, list_rows

    sent = [row.line for row in batch if row.is_sent]
    checked = list_rows(compile_rules(task).read_lines(sent)) if sent else []
    return [
        {
            "event_id": one.event_id,
            "status": "rejected",
            "line": line,
            "errors": [{"field": fault.field, "reason": fault.reason} for fault in one.faults],
        }
        for line, one in enumerate(checked, start=1)
        if isinstance(one, Refusal)
    ]
