"""A task that is read is the fold of its events, however they were appended."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.task import frames, states
from dragoman.core.task.log import Append, ArtifactChange, StatusChange
from dragoman.core.task.projection import fold
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import SESSION, by_runner, created, follow_up, message, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TEXT = st.text(max_size=8)
IDS = st.sampled_from(["a", "b", "c"])
PARTS = st.one_of(
    st.builds(lambda text: pb.Part(text=text), TEXT),
    st.builds(lambda raw: pb.Part(raw=raw, filename="f"), st.binary(max_size=8)),
    st.builds(lambda text: pb.Part(data={"struct_value": {"k": text}}), TEXT),
)


@st.composite
def artifacts(draw: st.DrawFn) -> ArtifactChange:
    artifact_drawn = pb.Artifact(parts=draw(st.lists(PARTS, min_size=1, max_size=3)))
    tail = pb.Artifact()
    for key in draw(st.lists(st.sampled_from("xyz"), max_size=2)):
        tail.metadata[key] = draw(TEXT)
    name = draw(IDS)
    return ArtifactChange(
        name,
        frames.text(1, name),
        artifact_drawn.SerializeToString(),
        tail.SerializeToString(),
        append=draw(st.booleans()),
    )


CHUNKS = st.builds(
    lambda name, text, append: ArtifactChange(name, frames.text(1, name), text=text, append=append),
    IDS,
    TEXT,
    st.booleans(),
)
STATUSES = st.builds(
    lambda text: StatusChange(states.WORKING, message(text, pb.ROLE_AGENT) if text else b""), st.sampled_from(["", "s"])
)
STEPS = st.lists(
    st.one_of(st.just("follow-up"), st.lists(st.one_of(artifacts(), CHUNKS, STATUSES), min_size=1, max_size=5)),
    max_size=8,
)


def joined(task: pb.Task, chunks: set[tuple[str, int]]) -> pb.Task:
    """The task as shown: neighboring parts that came as Dragoman's own text chunks are one part."""
    for artifact in task.artifacts:
        parts: list[tuple[bool, pb.Part]] = []
        for part in artifact.parts:
            own = (artifact.artifact_id, len(parts)) in chunks
            parts.append((own, part))
        del artifact.parts[:]
        before = False
        for own, part in parts:
            if own and before:
                artifact.parts[-1].text += part.text
            else:
                artifact.parts.append(part)
            before = own
    return task


class Model:
    """Folds the events that a client sees, and records which parts were Dragoman's own chunks."""

    def __init__(self) -> None:
        self.task = pb.Task()
        self.own: dict[str, list[bool]] = {}

    def apply(self, data: bytes, change: object) -> None:
        fold(self.task, pb.StreamResponse.FromString(data))
        if isinstance(change, ArtifactChange):
            update = pb.StreamResponse.FromString(data).artifact_update
            known = self.own.setdefault(change.artifact_id, [])
            if not change.append:
                known.clear()
            known.extend([change.text is not None] * len(update.artifact.parts))

    def shown(self) -> pb.Task:
        task = pb.Task()
        task.CopyFrom(self.task)
        del task.history[:]
        own = {(name, at) for name, flags in self.own.items() for at, flag in enumerate(flags) if flag}
        return joined(task, own)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_task_that_is_read_is_the_fold_of_its_events(steps: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), steps))


async def check(folder: Path, steps: list[object]) -> None:
    store = open_store(folder / "tasks.db", synchronous="normal")
    model, texts = Model(), ["hello"]
    claimed = await store.append(created(new_ref(), claim=SESSION))
    ref = claimed.record.ref
    model.apply(claimed.events[0].data, None)
    returned = list(claimed.events)
    for number, step in enumerate(steps):
        change: Append
        if step == "follow-up":
            change = follow_up(ref, f"u{number}")
            written = await store.append(change)
            model.apply(written.events[0].data, None)
            texts.append(f"u{number}")
        else:
            assert isinstance(step, list)
            written = await store.append(by_runner(claimed, *step))
            for event, one in zip(written.events, step, strict=True):
                model.apply(event.data, one)
        returned += written.events
        snapshot = await store.read(ref, history=0)
        assert snapshot is not None
        assert pb.Task.FromString(snapshot.task) == model.shown()
    whole = await store.read(ref)
    assert whole is not None
    history = pb.Task.FromString(whole.task).history
    assert [one.parts[0].text for one in history if one.role == pb.ROLE_USER] == texts
    assert [one for one in history if one.role == pb.ROLE_AGENT] == [
        one for one in model.task.history if one.role == pb.ROLE_AGENT
    ]
    assert [(e.sequence, e.data) for e in await store.events(ref, 0, 10_000)] == [
        (e.sequence, e.data) for e in returned
    ]
    await store.close()
