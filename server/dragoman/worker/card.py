"""What an agent says of itself, as a worker tells it to the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from google.protobuf.json_format import ParseDict

from dragoman.core.card import AgentSpec, Skill
from dragoman.core.retention import NAMES
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.worker")


def registration(spec: AgentSpec, turns: int) -> wk.AgentRegistration:
    """The agent of this spec, of which so many turns are taken.

    Security and `default` are the server's business; a line in the log says so.
    """
    if spec.security_schemes or spec.default:
        said = "security" if spec.security_schemes else "default"
        log.info("agent %s: what it says of %s is not told; that is the server's", spec.id, said)
    card = pb.AgentCard(
        name=spec.name,
        description=spec.description,
        version=spec.version,
        documentation_url=spec.documentation_url,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=_skills(spec.skills),
        capabilities=pb.AgentCapabilities(streaming=spec.streaming),
    )
    if spec.icon_url:
        card.icon_url = spec.icon_url
    if spec.provider:
        card.provider.organization, card.provider.url = spec.provider.organization, spec.provider.url
    for extension in spec.extensions:
        told = card.capabilities.extensions.add(
            uri=extension.uri, description=extension.description, required=extension.required
        )
        if extension.params:
            ParseDict(dict(extension.params), told.params)
    made = wk.AgentRegistration(
        id=spec.id,
        card=card,
        extended_skills=_skills(spec.extended_skills),
        direct=spec.direct,
        uncancelable=not spec.cancelable,
        refuses_messages=spec.while_working == "refuse",
        retries=spec.retries,
        turns=turns,
    )
    for limit in ("idle_limit", "time_limit"):
        if seconds := getattr(spec, limit):
            getattr(made, limit).FromNanoseconds(round(seconds * 1e9))
    for name, state in NAMES.items():
        if state in spec.retention:
            made.retention[name].FromMilliseconds(spec.retention[state])
    return made


def _skills(skills: Iterable[Skill]) -> list[pb.AgentSkill]:
    return [
        pb.AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=skill.tags,
            examples=skill.examples,
            input_modes=skill.input_modes,
            output_modes=skill.output_modes,
        )
        for skill in skills
    ]
