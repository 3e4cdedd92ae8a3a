"""A network that fails: a TCP proxy that drops connections, to try clients with.

    async with FlakyProxy("127.0.0.1:8080", every=3, seed=7) as proxy:
        ...  # talk to proxy.address
        assert proxy.dropped[Moment.ANSWER] > 0

The same on the command line is `dragoman flaky`.
"""

from dragoman.flaky.faults import Drop, How, Moment, Span
from dragoman.flaky.proxy import FlakyProxy

__all__ = ["Drop", "FlakyProxy", "How", "Moment", "Span"]
