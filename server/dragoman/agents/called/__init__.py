"""The common part of agents at other servers: calls, their retries and recovery, the failures of a turn.

Work that may have begun at the other server is not begun a second time: the turn follows it, or fails.
"""
