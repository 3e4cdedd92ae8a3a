"""Executors written for a2a-sdk or fasta2a, each in a child process of its own (docs/how-to/executors.md).

To the rest of the house such an agent is one of workers (`agents.dialled`): the frames are those of
dragoman.worker.v1, and the process that has it is a `Connection`. Only the road differs, a pair of pipes with a line of
ProtoJSON for each frame, because the environment of an executor need have neither gRPC nor protobuf. `process` is
the one, `host` keeps it running, and what runs in it is `dragoman/guest`.
"""

from dragoman.agents.executors.supervisor import ExecutorStartFailed, ExecutorSupervisor

__all__ = ["ExecutorSupervisor", "ExecutorStartFailed"]
