"""Options of a question: parameters in the query string of GET and POST /predict."""

from collections.abc import Iterable
from dataclasses import dataclass

from contracts.errors import Fault
from service.validation.values import parse_number

NAMES = frozenset({"task", "coverage", "rate"})
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Options:
    """`coverage` is how often the interval or set must hold the truth; `rate` asks for ∂/∂t and the next change."""

    coverage: float | None = None
    rate: bool = False


PLAIN = Options()


def take_options(
    pairs: Iterable[tuple[str, str]], faults: list[Fault]
) -> tuple[str | None, Options, list[tuple[str, str]]]:
    """The task, the options and the other parameters. Faults are added to `faults`; the options are then useless."""
    taken: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    repeated: dict[str, None] = {}
    for pair in pairs:
        name, value = pair
        if name not in NAMES:
            others.append(pair)
        elif name in taken:
            repeated[name] = None
        else:
            taken[name] = value
    task = taken.pop("task", None)
    if not taken and not repeated:
        return task, PLAIN, others
    faults += [Fault(name, "is given more than once") for name in repeated]
    coverage, rate = taken.get("coverage"), taken.get("rate")
    options = Options(
        None if coverage is None else _read_coverage(coverage, faults),
        rate is not None and _read_truth("rate", rate, faults),
    )
    return task, options, others


def _read_coverage(literal: str, faults: list[Fault]) -> float | None:
    try:
        coverage = parse_number(literal)
        if not 0 < coverage < 1:
            raise ValueError("is not between 0 and 1, both excluded")
        return coverage
    except ValueError as error:
        faults.append(Fault("coverage", str(error)))
        return None


def _read_truth(name: str, literal: str, faults: list[Fault]) -> bool:
    if literal not in _TRUTHS:
        faults.append(Fault(name, "is neither true nor false"))
    return _TRUTHS.get(literal, False)
