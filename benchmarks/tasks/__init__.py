"""Many tasks on one machine: what they cost while nobody asks anything, and how soon a change is obeyed.

`copies` makes as many tasks as wanted out of one, `counted` starts a process of Morrow that counts its statements and
requests, and `command` measures.
"""


def main(arguments: list[str]) -> None:
    """`python -m benchmarks tasks`; see `benchmarks.tasks.command`."""
    from benchmarks.tasks.command import main as run

    run(arguments)
