"""`python -m eris` is `eris`."""

from eris.cli import main

if __name__ == "__main__":
    main()
