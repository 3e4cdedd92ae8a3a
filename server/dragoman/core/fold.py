"""A Task is the fold of its events.

`fold` is the definition that stores are checked against, and what a client does with a stream (A2A 1.0 §7.2:
`append` adds parts to the artifact of that id, otherwise the artifact is put in place).
"""

from __future__ import annotations

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def fold(task: pb.Task, event: pb.StreamResponse) -> None:
    """Applies one event of a stream to `task`, in place. A Message is no part of a task and changes nothing."""
    match event.WhichOneof("payload"):
        case "task":
            task.CopyFrom(event.task)
        case "status_update":
            if task.status.HasField("message"):
                task.history.append(task.status.message)
            task.status.CopyFrom(event.status_update.status)
        case "artifact_update":
            _artifact(task, event.artifact_update)


def _artifact(task: pb.Task, update: pb.TaskArtifactUpdateEvent) -> None:
    for known in task.artifacts:
        if known.artifact_id == update.artifact.artifact_id:
            if update.append:
                known.parts.extend(update.artifact.parts)
                if update.artifact.HasField("metadata"):
                    known.metadata.MergeFrom(update.artifact.metadata)
                known.extensions.extend(update.artifact.extensions)
            else:
                known.CopyFrom(update.artifact)
            return
    task.artifacts.append(update.artifact)
