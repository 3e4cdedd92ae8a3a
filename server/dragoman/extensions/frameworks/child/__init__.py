"""Child side of executors: runs in the executor's process and environment.

Imports nothing of Dragoman or its dependencies, because the environment has the executor's packages, which may conflict
with ours: only Python 3.10's standard library and whatever version of a2a-sdk or fasta2a is installed. The parent runs
`python start.py TARGET`; stdin and stdout carry frames of dragoman.worker.v1, one line of ProtoJSON each
(docs/how-to/executors.md).
"""
