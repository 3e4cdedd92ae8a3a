"""Upstream agents: remote agents that speak A2A, served here through Dragoman.

`registry.py` knows them all, `discovery.py` evaluates their cards, `agent.py` is one agent as the runtime sees it,
`turn.py` one turn, `follow_ups.py` forwards messages that arrive meanwhile. `task_view.py` turns upstream events into
changes of our log, `turn_writer.py` writes them. `transport.py` opens transports to checked addresses.
"""
