"""Server side of workers: processes that dial in and run agents (dragoman.worker.v1).

`hub` accepts workers, `connection` is one worker, `turn` is one turn at a worker, and `agent` is what the runtime sees
of all workers of one agent.
"""
