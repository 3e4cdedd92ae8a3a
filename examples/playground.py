"""The installed playground agent. `dragoman serve examples/playground.py` is `dragoman serve`."""

from dragoman.playground import playground

__all__ = ["playground"]
