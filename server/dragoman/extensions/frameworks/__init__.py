"""Parent side of executors: a2a-sdk and fasta2a agents, each in a child process (docs/how-to/executors.md).

To the runtime such an agent is a `WorkerAgent` and its process a `WorkerConnection`: the frames are those of
dragoman.worker.v1. The transport differs, a pair of pipes with one line of ProtoJSON per frame, because the executor's
environment need not have gRPC or protobuf. `process` is the child process, `supervisor` restarts it, and
`dragoman/extensions/frameworks/child` runs in it.
"""

from dragoman.extensions.frameworks.supervisor import ExecutorStartFailed, ExecutorSupervisor

__all__ = ["ExecutorSupervisor", "ExecutorStartFailed"]
