"""`python -m eris`, the same as `eris`; nothing is imported before Ctrl-C can be caught."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C shows no traceback, not even while modules are still being loaded."""
    try:
        from eris.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
