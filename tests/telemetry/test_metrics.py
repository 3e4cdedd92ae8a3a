"""`/metrics` of a server: values, access, and the metrics that deploy/ uses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.test_webhooks import hooked

from dragoman import Turn, agent
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
ROOT: Final = "a-token-for-operators"

Values = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Values by full name and labels."""


@agent(default=True)
async def echo(turn: Turn) -> str:
    if turn.text == "fail":
        raise ValueError("as asked")
    if turn.text == "ask":
        turn.ask("which?")
    return turn.text


@agent
async def slow(turn: Turn) -> None:
    turn.status("at it")
    await asyncio.Event().wait()


@asynccontextmanager
async def serving(folder: Path, **overrides: Any) -> AsyncIterator[App]:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    async with open_app(Settings.model_validate({**places, **overrides}), [echo, slow]) as app:
        yield app


async def fetch(url: str, **headers: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


def parsed(text: str) -> Values:
    values: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in values.setdefault(sample.name, {}), f"{sample.name}{labels} is there twice"
            values[sample.name][labels] = sample.value
    return values


def value(values: Values, name: str, **labels: str) -> float:
    """The sum over all labels that are not given."""
    wanted = set(labels.items())
    return sum(number for has, number in values["dragoman_" + name].items() if wanted <= set(has))


async def test_requests_and_turns_are_counted(tmp_path: Path) -> None:
    async with hooked() as hook, serving(tmp_path, slots=2) as app, Client(str(app.grpc)) as client:
        for text in ("hello", "hello", "fail", "ask"):
            await client.send(message(text))
        task = (await client.send(message("hello"))).task
        with pytest.raises(ClientError):
            await client.cancel(task.id)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}
        requested_values = {
            "message": {"messageId": "p", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
            "configuration": {"taskPushNotificationConfig": {"url": hook.url}},
        }
        async with aiohttp.ClientSession(app.public_url) as session:
            await session.post("/", json=body)
            await session.post("/", json={**body, "method": "made/up"})
            await session.get("/made/up")
            await session.post("/message:send", json=requested_values, headers={"A2A-Version": "1.0"})
            async with Client(str(app.grpc), agent="slow") as busy:  # from here on no slot is free
                at_once = pb.SendMessageConfiguration(return_immediately=True)
                running = [(await busy.send(message("go"), configuration=at_once)).task.id for _ in range(3)]
            async with session.get(f"/slow/tasks/{running[0]}:subscribe", headers={"A2A-Version": "1.0"}) as stream:
                await stream.content.readline()
                await hook.until(1)
                async with asyncio.timeout(60):
                    while True:  # the push delivery ends a moment later, and is not a subscriber
                        status, media_type, text = await fetch(f"{app.public_url}/metrics")
                        if value(parsed(text), "subscribers") == 1:
                            break
    assert (status, media_type.partition(";")[0]) == (200, "text/plain")
    values = parsed(text)
    send = {"method": "lf.a2a.v1.A2AService/SendMessage", "binding": "grpc", "dialect": "1.0"}
    assert value(values, "requests_total", **send, code="OK") == 8
    assert value(values, "request_duration_seconds_count", **send) == 8
    assert value(values, "requests_total", binding="grpc", code="FAILED_PRECONDITION") == 1
    assert value(values, "requests_total", binding="jsonrpc", method="tasks/get", code="-32001") == 1
    assert value(values, "requests_total", binding="jsonrpc", method="other", code="-32601") == 1
    assert value(values, "requests_total", binding="page", method="other", code="404") == 1
    assert "made/up" not in text
    assert value(values, "tasks", agent="echo", state="completed") == 4
    assert value(values, "tasks", agent="echo", state="failed") == 1
    assert value(values, "tasks", agent="echo", state="input-required") == 1
    assert value(values, "waiting_tasks", agent="slow") == 1
    assert value(values, "queue_age_seconds", agent="slow") >= 0
    assert value(values, "runs_active") == value(values, "slots") == 2
    assert value(values, "runs_begun_total", agent="slow") == 2
    assert value(values, "runs_ended_total", agent="echo", state="completed") == 4
    assert value(values, "runs_ended_total", agent="echo", state="failed") == 1
    assert value(values, "run_duration_seconds_count", agent="echo") == 6
    assert value(values, "commit_changes_count") == value(values, "commit_duration_seconds_count") > 0
    assert value(values, "commit_changes_sum") >= value(values, "commit_changes_count")
    assert value(values, "events_total") >= 3 * 6
    assert value(values, "open_streams", binding="http") == 1
    assert value(values, "push_deliveries_total", outcome="delivered") >= 1
    assert value(values, "store_up") == value(values, "bus_up") == value(values, "build_info") == 1
    assert value(values, "draining") == 0
    assert values["process_resident_memory_bytes"][()] > 0
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}  # also those of workers
    unknown = referenced_metrics() - set(values) - named
    assert not unknown, f"dashboard and alerts ask for what is not there: {sorted(unknown)}"


async def test_metrics_require_the_operator_grant_with_authentication(tmp_path: Path) -> None:
    async with serving(tmp_path, token=ROOT, metrics="127.0.0.1:0") as app:
        url = f"{app.public_url}/metrics"
        assert (await fetch(url))[0] == 401
        assert (await fetch(url, Authorization="Bearer wrong"))[0] == 401
        status, media_type, text = await fetch(
            url, Authorization=f"Bearer {ROOT}", Accept="application/openmetrics-text; version=1.0.0"
        )
        assert (status, media_type.partition(";")[0]) == (200, "application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert app.metrics is not None
        status, _, text = await fetch(f"http://{app.metrics}/metrics")
        assert (status, value(parsed(text), "build_info", store="sqlite")) == (200, 1)
        assert (await fetch(f"http://{app.metrics}/tasks"))[0] == 404
        # A page of evil.example, whose owner points the name at this machine (DNS rebinding).
        assert (await fetch(f"http://{app.metrics}/metrics", Host=f"evil.example:{app.metrics.port}"))[0] == 403
        assert (await fetch(f"http://{app.metrics}/metrics", Host="localhost:9000"))[0] == 200


async def test_forwarded_requests_do_not_count_as_local(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        url = f"{app.public_url}/metrics"
        assert (await fetch(url))[0] == 200
        assert (await fetch(url, **{"X-Forwarded-For": "203.0.113.7"}))[0] == 401


async def test_a_failing_store_hides_no_other_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as app:
        requested: list[None] = []

        async def broken() -> None:
            requested.append(None)
            raise OSError("no such disk")

        monkeypatch.setattr(app.runtime.metrics.store, "stats", broken)
        both = await asyncio.gather(*(fetch(f"{app.public_url}/metrics") for _ in range(2)))
        for _, _, text in both:
            values = parsed(text)
            assert value(values, "store_up") == 0
            assert "dragoman_tasks" not in values
            assert value(values, "slots") > 0
        assert len(requested) == 1


# Metrics in deploy/ ------------------------------------------------------------------------------------------------


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dragoman.json").read_text())
    return loaded


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in dashboard()["panels"]:
        yield from (target["expr"].replace("$__rate_interval", "5m") for target in panel.get("targets", ()))


def referenced_metrics() -> set[str]:
    """Every metric in an alert or a panel."""
    found: set[str] = set()
    for expression in expressions():
        found |= set(re.findall(r"\b(?:dragoman|process)_[a-z_]+\b", expression))
    return found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_expression_is_promql(expression: str) -> None:
    promql_parser.parse(expression)  # raises ValueError


def test_every_alert_has_a_meaning_and_an_action() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places: Sequence[dict[str, int]] = [panel["gridPos"] for panel in dashboard()["panels"]]
    taken = {(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
    assert len(taken) == sum(p["w"] * p["h"] for p in places)
    assert max(x for x, _ in taken) < 24
