"""`python -m eris` is `eris`: nothing is imported before Ctrl-C can be caught."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interruption while its modules are still being loaded shows no traceback either."""
    try:
        from eris.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
