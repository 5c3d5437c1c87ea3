"""A PostgreSQL on a file system of its own, with little room: `python -m tests.e2e.small_postgres FOLDER`.

Each line on standard input starts it again, and is answered by the folder of its socket. A server that finds no
room for its log ends; the file system stays with this process.
"""

import sys
from pathlib import Path

from cli.local.postgres import EmbeddedPostgres


def main(folder: Path) -> None:
    """Until the end of standard input."""
    with EmbeddedPostgres(folder) as server:
        for _ in sys.stdin:
            server.stop()
            server.start()
            sys.stdout.write(f"{(folder / 'socket').readlink()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
