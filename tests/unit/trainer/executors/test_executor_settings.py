"""The settings of executors: what cannot be meant is refused with what to write instead."""

from typing import Any

import pytest
from pydantic import ValidationError

from handbook.example import DAY, START, reading
from trainer.evaluation.units import cut_units
from trainer.executors.ray_cluster import count_ray_threads
from trainer.settings import TrainerSettings

pytest.importorskip("ray", reason="Ray is not installed: pip install 'morrow[ray]'")

ADDRESS = "ray://head:10001"


@pytest.mark.parametrize(
    "address", ["head:10001", "ray://head", "ray://head:70000", "ray://head:0", "ray://user@head:10001", "http://h:1"]
)
def test_an_address_that_is_no_ray_client_server_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="write ray://HOST:10001"):
        TrainerSettings(ray_address=address)


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/", "ray://10.0.0.1:10001", "ray://[::1]:10001"])
def test_an_address_of_a_ray_client_server_is_taken(address: str) -> None:
    settings = TrainerSettings(executor="ray", ray_address=address)
    assert settings.ray_address == address.rstrip("/")
    assert TrainerSettings(**settings.model_dump(mode="json")) == settings


def test_ray_without_an_address_is_refused() -> None:
    with pytest.raises(ValidationError, match="MORROW_EXECUTOR=ray needs it"):
        TrainerSettings(executor="ray")


def test_a_unit_has_a_thread_for_each_cpu_that_it_asks_for() -> None:
    given: dict[str, Any] = {"executor": "ray", "ray_address": ADDRESS}
    threads = [count_ray_threads(TrainerSettings(**given, ray_cpus=cpus)) for cpus in (0.5, 1, 2.5)]
    assert threads == [1, 1, 2]
    assert count_ray_threads(TrainerSettings(**given, ray_cpus=4, threads=3)) == 3


@pytest.mark.parametrize(
    ("units", "workers", "sizes"), [(0, 1, [7]), (0, 2, [3, 4]), (3, 1, [1, 3, 3]), (9, 1, [1] * 7)]
)
def test_settings_alone_cut_origins_into_units_with_the_newest_first(
    units: int, workers: int, sizes: list[int]
) -> None:
    origins = [START + days * DAY for days in range(2, 9)]
    made = cut_units(reading(9), origins, TrainerSettings(units=units, training_workers=workers))
    assert [len(unit.origins) for unit in made] == sizes
    assert sorted(origin for unit in made for origin in unit.origins) == origins
    assert max(origins) in made[0].origins
    assert len({unit.digest for unit in made}) == len(made)


def test_no_origins_make_no_unit() -> None:
    assert cut_units(reading(3), [], TrainerSettings(units=4)) == []
