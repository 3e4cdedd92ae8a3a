"""Runs the command line: `python -m dragoman` is `dragoman`."""

from dragoman.cli import main

if __name__ == "__main__":
    main()
