"""A cache of what is computed from tasks: it grows with their number."""

from store.tasks.task_cache import LEAST, TaskCache


def test_a_second_walk_through_many_tasks_computes_nothing() -> None:
    computed: list[int] = []

    def compute(key: int) -> int:
        computed.append(key)
        return 2 * key

    cache = TaskCache(compute)
    num_tasks = 4 * LEAST
    cache.make_room(num_tasks)
    for _ in range(2):
        assert [cache(key) for key in range(num_tasks)] == [2 * key for key in range(num_tasks)]
    assert computed == list(range(num_tasks))


def test_room_is_made_for_more_tasks_and_never_taken_away() -> None:
    computed: list[int] = []
    cache: TaskCache[int, None] = TaskCache(computed.append)
    for num_tasks in (10 * LEAST, 1):
        cache.make_room(num_tasks)
    for _ in range(2):
        for key in range(10 * LEAST):
            cache(key)
    assert len(computed) == 10 * LEAST
