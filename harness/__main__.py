"""`python -m harness` is the command."""

from harness.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
