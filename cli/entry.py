"""The installed command `morrow`: it settles its environment before any library can read that."""

from contracts.runtime.entry import begin


def main() -> None:
    """Run the command line."""
    begin()
    from cli.main import app

    app(prog_name="morrow")


if __name__ == "__main__":
    main()
