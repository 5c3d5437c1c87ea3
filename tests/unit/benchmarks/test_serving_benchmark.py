"""What the serving benchmark counts and compares: every answer, every error, and ratios within a round."""

import asyncio
import json
from typing import Any

import pytest

from benchmarks.errors import LoadFailed
from benchmarks.serving.load import Load, Requests, ask_all
from benchmarks.serving.questions import batch_body, complete_rows, frame_body, get_paths, tensor_body
from benchmarks.serving.release import Released, read_tasks
from benchmarks.serving.rounds import Measured, compare, require_no_errors
from contracts.clock import parse_moment
from service.predict.endpoint import parse_query
from service.validation.rules import compile_rules

COHORT, PLAIN = read_tasks()
FEATURES: dict[str, Any] = {
    **{feature.name: 1.5 for feature in COHORT.numbers},
    **{feature.name: "UA & co" for feature in COHORT.categories},
}
AT = "2013-07-02T05:00:00Z"
EVENTS = [{"event_id": str(place), "at": AT, "features": FEATURES | {"distance": place}} for place in range(5)]
RELEASED = Released(COHORT, "1", [{"event_id": "m", "at": AT, "features": FEATURES | {"temp": None}}, *EVENTS])


def measured(num_requests: int, cpu_seconds: float, num_errors: int = 0) -> Measured:
    return Measured(Load(num_requests, num_errors, seconds=2.0, p99_ms=1.0), cpu_seconds, rows=10)


def test_the_median_of_the_ratios_counts_not_the_ratio_of_the_medians() -> None:
    ours, other = (
        [measured(10, 1), measured(30, 1), measured(80, 1)],
        [measured(10, 1), measured(10, 1), measured(40, 1)],
    )
    found = compare(ours, other, lambda one: one.rate)
    assert (found.ours, found.yardstick, found.ratio) == (150, 50, 2)


def test_rows_count_per_second_and_per_second_of_the_servers_time() -> None:
    one = measured(num_requests=40, cpu_seconds=0.5)
    assert (one.rate, one.cpu_rate) == (200, 800)


def test_nothing_is_compared_with_a_server_that_fails() -> None:
    require_no_errors({"good": [measured(1, 1)]})
    with pytest.raises(LoadFailed, match="bad: 3"):
        require_no_errors({"good": [measured(1, 1)], "bad": [measured(1, 1), measured(1, 1, num_errors=3)]})


def test_the_plain_task_differs_from_the_cohorts_by_its_network_alone() -> None:
    assert (PLAIN.training.num_seeds, PLAIN.training.num_trelu) == (1, 0)
    assert COHORT.training.num_seeds > 1
    assert PLAIN.row_schema == COHORT.row_schema


def test_every_server_is_asked_the_same_rows_and_none_with_a_missing_value() -> None:
    rows = complete_rows(RELEASED, 7)
    assert [row["event_id"] for row in rows] == ["0", "1", "2", "3", "4", "0", "1"]
    rules = compile_rules(COHORT)
    for place, path in enumerate(get_paths("flights", rows)):
        (name, task), *pairs = parse_query(path.partition("?")[2].encode())
        assert (name, task) == ("task", "flights")
        asked = rules.read_query(pairs)
        tensor = json.loads(tensor_body(COHORT, rows))["inputs"]
        assert (asked.at, list(asked.numbers)) == (tensor["at"][place], tensor["numbers"][place])
        assert list(asked.categories) == tensor["categories"][place]
        frame = json.loads(frame_body(COHORT, rows))["dataframe_split"]
        assert frame["data"][place] == [tensor[name][place] for name in frame["columns"]]
        assert (
            json.loads(batch_body(rows))["rows"][place]["features"]["distance"] == rows[place]["features"]["distance"]
        )
    assert parse_moment(AT) == tensor["at"][0]


@pytest.mark.parametrize("bodies", [(), ("one", "two")])
def test_the_client_of_our_own_counts_answers_errors_and_sends_each_request(bodies: tuple[str, ...]) -> None:
    seen: list[tuple[str, str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                seen.append((head.partition(" HTTP")[0], (await reader.readexactly(length)).decode()))
                status = "500 No" if "/bad" in head else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok".encode())
        except asyncio.IncompleteReadError:
            writer.close()

    async def main() -> Load:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            requests = Requests(f"http://127.0.0.1:{port}", ["/good", "/bad"], bodies, key="k")
            return await ask_all(requests, connections=2, seconds=0.3)

    load = asyncio.run(main())
    verb = "POST" if bodies else "GET"
    assert load.num_requests == len(seen)
    assert load.num_errors == sum(line == f"{verb} /bad" for line, _ in seen) > 0
    assert {line for line, _ in seen} == {f"{verb} /good", f"{verb} /bad"}
    assert {body for _, body in seen} == set(bodies or [""])
