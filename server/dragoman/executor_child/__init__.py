"""What runs beside somebody's executor, in its process and with the packages of its environment.

Nothing here imports anything of Dragoman or of its dependencies: the environment has what the executor needs, and
that may clash with what we need. It is Python 3.10 and its standard library, and where a2a-sdk or fasta2a are
spoken to, whatever version of them is there. The process is started with `python start.py TARGET`; its stdin and
stdout carry the frames of dragoman.worker.v1 as ProtoJSON, one on each line (docs/how-to/executors.md).
"""
