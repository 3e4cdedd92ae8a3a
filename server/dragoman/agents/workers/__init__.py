"""Agents that run in other processes, which dial in (dragoman.worker.v1).

`switchboard` is where workers connect, `connection` is one of them, `turn` one turn that it runs, `agent` what the
runtime sees of all workers of one agent, `registration` and `events` read what they send.
"""
