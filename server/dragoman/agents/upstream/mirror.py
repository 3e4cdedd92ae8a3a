"""What an agent upstream says of its task, as changes of ours: each thing once, whatever it was learnt from.

Streams say what is added; a Task read afterwards says everything again. Of each artifact it is remembered how much of
it was put, as a count and a digest and not as the content, so that a Task adds only what is new, or replaces the
artifact where it became another one (`dragoman.core.seen`).
"""

from __future__ import annotations

from dragoman.agents.values import NewId, change_of, checked_part, head_of
from dragoman.core import states
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import ArtifactChange
from dragoman.core.seen import Content, is_plain
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ARTIFACTS = 10_000
"""Artifacts of one task; their ids are kept while the turn lasts."""


class Mirror:
    """One task upstream, as far as it was put into our log. Raises InvalidAgentResponse for what breaks a rule."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._seen: dict[str, Content] = {}

    @property
    def has_any(self) -> bool:
        """Whether an artifact was seen."""
        return bool(self._seen)

    def snapshot(self, task: pb.Task) -> list[ArtifactChange]:
        """What a Task says that is not put yet."""
        changes = (self._compare(artifact) for artifact in task.artifacts)
        return [change for change in changes if change is not None]

    def update(self, update: pb.TaskArtifactUpdateEvent) -> ArtifactChange | None:
        """What an event of a stream adds; None when it adds nothing, and says nothing else."""
        artifact = self._named(update.artifact)
        if not artifact.parts:  # the last chunk of some servers: it is only said that it was the last
            if not (update.last_chunk and artifact.artifact_id in self._seen):
                return None
            return ArtifactChange(artifact.artifact_id, head_of(artifact.artifact_id), append=True, last_chunk=True)
        known = self._seen.get(artifact.artifact_id)
        append = update.append and known is not None
        content = known if append and known is not None else Content.of(artifact)
        content.add(artifact.parts)
        self._seen[artifact.artifact_id] = content
        made = change_of(artifact, append=append, last=update.last_chunk)
        if not update.HasField("metadata"):
            return made
        return ArtifactChange(
            made.artifact_id,
            made.head,
            made.parts,
            made.tail,
            append=made.append,
            last_chunk=made.last_chunk,
            metadata=update.metadata.SerializeToString(),
        )

    def _compare(self, said: pb.Artifact) -> ArtifactChange | None:
        artifact = self._named(said)
        if not artifact.parts:
            return None
        known = self._seen.get(artifact.artifact_id)
        rest = known.rest(artifact) if known is not None else None
        if known is None or rest is None:
            content = self._seen[artifact.artifact_id] = Content.of(artifact)
            content.add(artifact.parts)
            if len(artifact.parts) == 1 and is_plain(artifact.parts[0]):
                # A text that may grow is put as a chunk of our own, so that it stays one text when it does.
                content.grows = True
                whole = change_of(artifact)
                return ArtifactChange(whole.artifact_id, whole.head, tail=whole.tail, text=artifact.parts[0].text)
            return change_of(artifact)
        if not rest:
            return None
        known.add(rest)
        id = artifact.artifact_id
        if known.grows and len(rest) == 1 and is_plain(rest[0]):
            return ArtifactChange(id, head_of(id), text=rest[0].text, append=True)
        known.grows = False
        return change_of(pb.Artifact(artifact_id=id, parts=rest), append=True)

    def _named(self, artifact: pb.Artifact) -> pb.Artifact:
        """The artifact with an id and checked."""
        for part in artifact.parts:
            checked_part(part)
        if not artifact.artifact_id:
            artifact.artifact_id = self._new_id()
        if artifact.artifact_id not in self._seen and len(self._seen) >= ARTIFACTS:
            raise InvalidAgentResponse(f"the task has more than {ARTIFACTS} artifacts")
        return artifact


def is_over(state: int) -> bool:
    """Whether a turn upstream is over in this state, until somebody sends something."""
    return state in states.TERMINAL or state == states.INPUT_REQUIRED
