"""Which version the alias names, for all tasks at once: one search of MLflow's registry, and again only after a while.

`releases` says what the alias should be. So the alias of a task whose champion has just changed is asked for at once,
and the search finds aliases that were moved by hand in MLflow. The larger the registry, the longer the pause between
two searches: MLflow's work for them stays a small share of a core.
"""

import time
from collections.abc import Mapping

import httpx

from contracts.errors import Unavailable
from service.models.registry.client import Champion, RegisteredModel, find_champion, search_models

# Models that are searched at each poll. For each further hundred, the next search comes a second later.
SEARCHED_EACH_POLL = 200
_MODELS_PER_SECOND = 100
# The pause after a search that failed, in multiples of its duration: polls of the store must not wait for it.
_PAUSES = 4


class Aliases:
    """The aliases as the last search found them, newer ones of single tasks, and when to search again."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._models: Mapping[str, RegisteredModel] = {}
        # What was asked for a single task since the last search, and the release that gave the reason.
        self._asked: dict[str, tuple[str | None, Champion | None]] = {}
        # Champions whose creation time the search does not give, by the model and version that it found.
        self._exact: dict[str, tuple[RegisteredModel, Champion | None]] = {}
        # Why the last search failed.
        self.error: Unavailable | None = None
        self._next_at = float("-inf")
        self._is_fresh = False

    def search(self, now: float) -> set[str]:
        """Search if it is due, `now` in monotonic seconds; returns the tasks whose alias is not what it was.

        Raises Unavailable. Then no alias is known until a later search succeeds.
        """
        self._is_fresh = False
        if now < self._next_at:
            if self.error is not None:
                raise self.error
            return set()
        began = time.monotonic()
        try:
            found = search_models(self._client)
        except Unavailable as error:
            self.error, self._next_at = error, now + _PAUSES * (time.monotonic() - began)
            raise
        former, self._models = self._models, found
        self.error, self._is_fresh = None, True
        self._next_at = now + max(0, len(found) - SEARCHED_EACH_POLL) / _MODELS_PER_SECOND
        moved = {task for task in found.keys() | former.keys() if found.get(task) != former.get(task)}
        self._asked.clear()
        self._exact = {task: exact for task, exact in self._exact.items() if found.get(task) == exact[0]}
        return moved

    def find(self, task: str, released: str | None) -> Champion | None:
        """The version that the alias of a task names, None if there is no alias; `released` is what it should be.

        Raises Unavailable.
        """
        if self.error is not None:
            raise self.error
        if task in self._asked and released == self._asked[task][0]:
            return self._asked[task][1]
        model = self._models.get(task)
        if not self._is_fresh and released is not None and (model is None or model.champion != released):
            self.note(task, released, find_champion(self._client, task))
            return self._asked[task][1]
        if model is None:
            return None
        if model.is_readable and (model.champion is None or model.made_at is not None):
            return None if model.champion is None else Champion(model.champion, model.made_at, model.installation)
        if task not in self._exact:
            self._exact[task] = model, find_champion(self._client, task)
        return self._exact[task][1]

    def note(self, task: str, released: str | None, champion: Champion | None) -> None:
        """Note what a request for a single task has just found, until the next search."""
        self._asked[task] = released, champion
