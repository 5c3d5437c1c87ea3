"""How statements find events by id: by the primary key, whatever the planner's statistics say.

The statistics may not know a task yet. The planner then expects one row of it, and finds the index of moments as good
as the primary key. Each id that it looks up so reads all rows of the task.

The planner does not see into the array below, and expects several tasks in it, so the index of moments looks worse. The
id is bounded as well as equal, since statistics of tasks that share ids say that an id tells nothing. Each bound is
free for the primary key. Ids in an array are looked up one by one: for a whole array the planner may prefer one read of
what it takes for a small task.
"""

# The right side of `events.task_id =`.
OF_TASK = "ANY(ARRAY(SELECT CAST(:task_id AS integer)))"


def has_given_id(events: str = "events") -> str:
    """A condition on the table of this name: task and id of the event are the parameters `task_id` and `event_id`."""
    return _has_id(events, "(SELECT CAST(:event_id AS text))")


def is_readable(column: str) -> str:
    """A condition: Python's calendar has the moment. Rows that were written past the API may hold others."""
    return f"{column} BETWEEN '0001-01-01T00:00:00Z' AND '9999-12-31T23:59:59.999999Z'"


def each_of(ids: str, columns: str, condition: str, *, lock: str = "", table: str = "events") -> str:
    """An item of FROM, named `found`: columns of the events of these ids that meet a condition, in the order of ids.

    `ids` names a parameter that is an array. Rows are locked in the same order, if at all. OFFSET keeps the planner
    from joining all rows of the task with the ids.
    """
    return f"""
        unnest(CAST(:{ids} AS text[])) AS given(id) CROSS JOIN LATERAL (
            SELECT {columns} FROM {table} WHERE {_has_id(table, "given.id")} AND {condition} OFFSET 0 {lock}
        ) AS found
    """  # noqa: S608 our own fragments


def _has_id(events: str, event_id: str) -> str:
    column = f"{events}.event_id"
    return f"{events}.task_id = {OF_TASK} AND {column} = {event_id} AND {column} BETWEEN {event_id} AND {event_id}"
