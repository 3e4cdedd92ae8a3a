"""A network that fails: a TCP proxy that drops connections, to try clients with.

    async with FaultProxy("127.0.0.1:8080", every=3, seed=7) as proxy:
        ...  # talk to proxy.address
        assert proxy.dropped[DropPoint.DURING_RESPONSE] > 0

The same on the command line is `dragoman flaky`.
"""

from dragoman.fault_proxy.proxy import Drop, DropLimit, DropMode, DropPoint, FaultProxy

__all__ = ["Drop", "FaultProxy", "DropMode", "DropPoint", "DropLimit"]
