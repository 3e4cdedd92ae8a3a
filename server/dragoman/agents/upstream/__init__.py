"""Agents that are elsewhere and speak A2A themselves: Dragoman stands in front of them.

`directory.py` knows them, `reading.py` reads their cards, `agent.py` is one of them as the runtime sees it, `turn.py`
one turn of it. `over_http.py` and `over_grpc.py` are the roads to it; `mirror.py` makes of what it says what our own
log takes, and `memory.py` is what is kept of it with our task.
"""
