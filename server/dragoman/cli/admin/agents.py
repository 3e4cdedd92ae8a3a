"""`agents`: lists, pauses and resumes a server's agents, adds and removes upstream agents. `workers`: its workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from dragoman.calling.secret_files import read_secret
from dragoman.cli.commands import Command, CommandGroup, argument, option
from dragoman.cli.options import Json, ServerTarget, complete_agents
from dragoman.cli.output import ConsoleOutput, format_elapsed, format_time
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops import v1 as ops

_AGENTS_HELP = "List, pause and resume the agents of a server; add and remove upstream A2A agents."
_WORKERS_HELP = """List workers; release the ids of agents without workers.

To run a worker: `dragoman worker`.
"""

AgentId = Annotated[str, argument("AGENT", "The agent's id.", autocompletion=complete_agents)]


async def list_agents(json: Json = False, *, target: ServerTarget) -> None:
    """List the agents of a server, root agent first, with the state of upstream agents.

    **Example**: `dragoman agents list`
    """
    async with target.operator() as operator:
        agents = (await operator.list_agents(ops.ListAgentsRequest())).agents
        upstreams = (await operator.list_upstreams(ops.ListUpstreamsRequest())).upstreams
    upstream_by_agent = {one.agent: one for one in upstreams}

    names = {agent.id: f"{agent.id}{'  (root)' if agent.root else ''}" for agent in agents}
    width = max(map(len, names.values()), default=0)

    def describe_agent(agent: ops.Agent) -> Iterator[str]:
        yield f"{names[agent.id]:<{width}}  {agent.name}: {agent.description}"
        if agent.HasField("pause"):
            yield f"  {_describe_pause(agent.pause)}"
        if agent.id in upstream_by_agent:
            yield from _describe_upstream(upstream_by_agent[agent.id])

    def describe_unserved(upstream: ops.Upstream) -> Iterator[str]:
        if not upstream.agent:  # it has no id yet
            yield f"not served: {upstream.url}"
            yield from _describe_upstream(upstream)

    out = ConsoleOutput()
    out.messages(agents, describe_agent, json=json)
    out.messages(upstreams, describe_unserved, json=json)


async def pause(
    agent: AgentId,
    reason: Annotated[str, option("--reason", "TEXT", "Why, for people; at most 500 characters.")] = "",
    *,
    target: ServerTarget,
) -> None:
    """Pause an agent: its tasks wait until it is resumed. Running turns go on.

    It holds for all servers of the store, and after restarts.

    **Example**: `dragoman agents pause weather --reason "the model is down"`
    """
    response = await target.call(Operator.pause_agent, ops.PauseAgentRequest(agent=agent, reason=reason))
    ConsoleOutput().line(f"{agent}: {_describe_pause(response.pause)}")


async def resume(agent: AgentId, *, target: ServerTarget) -> None:
    """Resume an agent: its waiting tasks begin.

    **Example**: `dragoman agents resume weather`
    """
    await target.call(Operator.resume_agent, ops.ResumeAgentRequest(agent=agent))
    ConsoleOutput().line(f"resumed: {agent}")


async def add(
    url: Annotated[str, argument("URL", "The URL of its card, or the base of that URL.")],
    id: Annotated[str, option("--id", "ID", "Its id on this server. [derived from its name]")] = "",
    prefix: Annotated[str, option("--prefix", "TEXT", "Prefix of an id that is derived from its name.")] = "",
    token_file: Annotated[
        str, option("--token-file", "PATH", "File with a bearer token to send to the agent; - reads stdin. [none]")
    ] = "",
    header: Annotated[
        list[str] | None, option("--header", "'NAME: TEXT'", "A header to send to the agent; may be repeated.")
    ] = None,
    turns: Annotated[int | None, option("--turns", "N", "Concurrent turns of the agent. [100]", min=1)] = None,
    json: Json = False,
    *,
    target: ServerTarget,
) -> None:
    """Add an upstream A2A agent, which the server then serves with a card and tasks of its own.

    The agent is saved in the store. Other servers on the same store add it at once, or within 5 s without a bus. The
    values of --token-file and --header are stored too, encrypted if the server has --secrets-keys. --key
    authenticates you to the server, not to the agent.

    **Examples**

    `dragoman agents add https://agents.example.com/weather`

    `dragoman agents add http://10.1.2.3:9999 --id desk --token-file desk.token`
    """
    request = ops.AddUpstreamRequest(
        url=url, id=id, prefix=prefix, turns=turns or 0, headers=_read_headers(header or [], token_file)
    )
    added = (await target.call(Operator.add_upstream, request)).upstream
    ConsoleOutput().messages([added], lambda one: (f"added: {one.agent}", *_describe_upstream(one)), json=json)


async def remove(agent: AgentId, *, target: ServerTarget) -> None:
    """Remove an upstream agent. Its waiting tasks end as FAILED; its running tasks may finish.

    **Example**: `dragoman agents remove weather`
    """
    response = await target.call(Operator.remove_upstream, ops.RemoveUpstreamRequest(agent=agent))
    ConsoleOutput().line(f"removed: {agent}; waiting tasks that ended as FAILED: {response.ended_tasks}")


async def list_workers(json: Json = False, *, target: ServerTarget) -> None:
    """List the agents of workers, their owners, and the workers connected to this server.

    An agent remains when its workers disconnect: its card and tasks stay available, and new tasks wait for some time
    (`serve --worker-wait`).

    **Example**: `dragoman workers list`
    """
    response = await target.call(Operator.list_workers, ops.ListWorkersRequest())
    out = ConsoleOutput()
    out.messages(response.agents, _describe_worker_agent, json=json)
    if not response.agents and not json:
        out.line("no worker has ever connected")


async def forget(agent: AgentId, *, target: ServerTarget) -> None:
    """Remove an agent without workers, so that another principal can use its id.

    Its waiting tasks end as FAILED. Its other tasks are unavailable until an agent with this id is added again.

    **Example**: `dragoman workers forget desk`
    """
    response = await target.call(Operator.forget_agent, ops.ForgetAgentRequest(agent=agent))
    ConsoleOutput().line(f"forgotten: {agent}; waiting tasks that ended as FAILED: {response.ended_tasks}")


def _read_headers(headers: Sequence[str], token_file: str) -> dict[str, str]:
    """The headers of the command line, with the token. Raises typer.BadParameter."""
    values = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("must be NAME: TEXT, such as 'X-Api-Key: abc'", param_hint="--header")
        values[name.strip()] = value.strip()
    if token_file:
        try:
            token = sys.stdin.read().strip() if token_file == "-" else read_secret(token_file)
        except ValueError as error:
            raise typer.BadParameter(f"{error}", param_hint="--token-file") from error
        values["Authorization"] = f"Bearer {token}"
    return values


def _describe_pause(pause: ops.AgentPause) -> str:
    reason = f": {pause.reason}" if pause.reason else ""
    return f"paused by {pause.principal} since {format_time(pause.since)}{reason}"


def _describe_upstream(upstream: ops.Upstream) -> Iterator[str]:
    source = "from the settings" if upstream.settings else "added"
    credentials = ", with credentials" if upstream.credentials else ""
    yield f"  upstream {upstream.url} ({source}{credentials}): {upstream.running} of {upstream.turns} turns"
    for index, interface in enumerate(upstream.interfaces):
        yield f"  {'uses' if not index else 'also'} {interface}"
    for reason in upstream.skipped_interfaces:
        yield f"  not used: {reason}"
    if upstream.unavailable_ms:
        yield f"  unavailable for {upstream.unavailable_ms // 1000} s"
    if upstream.last_error:
        yield f"  last call failed {format_elapsed(upstream.last_error_ms)} ago: {upstream.last_error}"


def _describe_worker_agent(agent: ops.WorkerAgent) -> Iterator[str]:
    seen = "" if agent.workers else f", last seen {agent.seen.ToDatetime():%Y-%m-%d %H:%M:%S} UTC"
    yield f"{agent.agent}  ({agent.principal}{seen})"
    for worker in agent.workers:
        draining = ", draining" if worker.draining else ""
        yield f"  {worker.name} ({worker.peer}): {worker.running} running, {worker.free} free{draining}"
    if not agent.workers:
        yield "  no worker connected"


COMMANDS: Final = {
    "agents": CommandGroup(
        _AGENTS_HELP,
        {
            "list": Command(list_agents),
            "pause": Command(pause),
            "resume": Command(resume),
            "add": Command(add),
            "remove": Command(remove),
        },
    ),
    "workers": CommandGroup(_WORKERS_HELP, {"list": Command(list_workers), "forget": Command(forget)}),
}
