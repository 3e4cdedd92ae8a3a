"""The console in a browser, against the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import SecretStr
from tests.console.served import PNG, staged
from tests.runtime.push.receivers import answered

from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = pytest.mark.browser

DOWN = "https://down.example/hook"
TIMELINE = (
    "[...document.querySelectorAll('.conversation > li')]"
    ".map(line => [line.dataset.kind, line.querySelector('.what').innerText])"
)


def response(lines: list[list[str]]) -> list[tuple[str, str]]:
    """Returns the lines of a timeline as (kind, text)."""
    return [(kind, " ".join(text.split())) for kind, text in lines]


async def test_a_file_is_sent_and_the_response_is_streamed(browser: str, tmp_path: Path) -> None:
    table = tmp_path / "colors.csv"
    table.write_text("red;green\nblue;\n")
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.see("No tasks yet")
        await page.click(".empty-state .primary", "New task")
        await page.type("#message", "count them")
        await page.attach("input[type=file]", [table])
        await page.see("colors.csv 16 B", ".files")
        await page.click(".compose button", "Send")
        await page.see("read colors.csv: 16 bytes", ".conversation")
        stage.conductor.say("one, ")
        await page.see("one,", ".conversation")
        await page.becomes("document.querySelector('.head .state').innerText", "working")
        await page.see("live", ".bar")
        stage.conductor.say("two, ", "three")
        await page.see("one, two, three", ".conversation")
        await page.until("document.querySelector('.list .state').innerText === 'working'")
        stage.conductor.say(None)
        await page.see("completed", ".head")
        await page.until("document.querySelector('.list .state').innerText === 'completed'")
        lines = response(await page.run(TIMELINE))
        assert lines[:2] == [
            ("created", "submitted"),
            ("user", "user count them colors.csv text/csv, 16 B Raw red green blue"),
        ]
        assert lines[-2:] == [("artifact", "artifact Answer 3 chunks one, two, three"), ("status", "completed")]
        given = await page.run(
            "fetch(document.querySelector('[data-kind=user] a[download]').href).then(file => file.text())"
            ".catch(error => String(error))"
        )
        # The content security policy forbids scripts to read it, so the page can only link to it.
        assert "Failed to fetch" in given
        await page.becomes("document.querySelector('[data-kind=user] a[download]').download", "colors.csv")
        page.errors.clear()


async def test_a_question_is_answered_and_every_kind_of_part_is_shown(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.send("paint", "curious")
        await page.see("Which color?", ".conversation")
        await page.see("input required", ".head")
        await page.type("#message", "red")
        await page.click(".compose button", "Answer")
        await page.see("completed", ".head")
        expected = [
            ("created", "submitted"),
            ("user", "user paint"),
            ("status", "input required Which color?"),
            ("user", "user red"),
        ]
        await page.see("You said red.", ".conversation")
        for _ in ("as it came", "and as it is read again"):
            await page.until("document.querySelectorAll('.conversation > [data-kind=user]').length === 2")
            lines = [line for line in response(await page.run(TIMELINE)) if line != ("status", "working")]
            assert lines[:4] == expected
            assert lines[-1] == ("status", "completed")
            await page.reload()
        await page.click("[data-tab=artifacts]")
        await page.until("document.querySelector('.results img')?.naturalWidth === 10")
        await page.see('color: "red"', ".results .json")
        await page.click(".results .content:has(.json) .raw", "Raw")
        assert json.loads(await page.text(".results pre.data")) == {"color": "red", "seen": [1, 2, 3]}
        links = await page.run("[...document.querySelectorAll('.results a[download]')].map(one => one.download)")
        assert links == ["color.png", "colors.csv"]
        assert f"image/png, {len(PNG)} B" in await page.text(".results")
        # The task has ended, so the next message starts another task in the same conversation.
        await page.type("#message", "green")
        await page.click(".compose button", "Send")
        await page.see("Which color?", ".conversation")
        await page.until("document.querySelectorAll('.list tbody tr').length === 2")


async def test_a_task_is_canceled(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        task = await stage.send("go on")
        stage.conductor.say("and on")
        await page.see("and on", ".conversation")
        await page.click(".head button", "Cancel task")
        await page.see("Its agent is asked to stop", "dialog[open]")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        await page.becomes("document.activeElement.innerText", "Cancel task", "the focus is where it was")
        await page.becomes("document.querySelector('.head .state').innerText", "working")
        await page.click(".head button", "Cancel task")
        await page.until("document.activeElement.innerText === 'Keep it'")
        await page.click("dialog[open] button", "Cancel task")
        await page.see("canceled", ".head .state")
        await page.until("!document.querySelector('.head .danger') && document.activeElement.id === 'task-title'")
        async with stage.http.get(f"/tasks/{task}") as answer:
            assert (await answer.json())["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_page_reloaded_during_a_stream_shows_all_events(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.send("count")
        stage.conductor.say(*(f"{n} " for n in range(50)))
        await page.see("48 49", ".conversation")
        stage.conductor.say(*(f"{n} " for n in range(50, 100)))
        await page.reload()
        stage.conductor.say(*(f"{n} " for n in range(100, 150)), None)
        await page.see("completed", ".head")
        assert (await page.text("[data-kind=artifact] .text")).split() == [str(n) for n in range(150)]


async def test_a_lost_connection_is_resumed(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.send("count")
        stage.conductor.say(*(f"{n} " for n in range(20)))
        await page.see("18 19", ".conversation")
        for first in (20, 40):
            stage.proxy.cut()
            await page.see("connection lost", ".bar")
            stage.conductor.say(*(f"{n} " for n in range(first, first + 20)))
            stage.proxy.restore()
            await page.see(f"{first + 18} {first + 19}", ".conversation")
            await page.see("live", ".bar")
        stage.conductor.say("done", None)
        await page.see("completed", ".head")
        assert (await page.text("[data-kind=artifact] .text")).split() == [*map(str, range(60)), "done"]
        assert [line[0] for line in response(await page.run(TIMELINE))].count("artifact") == 1


async def test_a_push_notification_is_redelivered(browser: str, tmp_path: Path) -> None:
    hook = "https://hooks.example/1"
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        pushing = {"taskPushNotificationConfig": {"url": hook}}
        task = await stage.put("paint", configuration=pushing)
        last = (await page.run(f"fetch('operations/tasks/{task['id']}:explain').then(r => r.json())"))["tasks"][0]
        count = int(last["lastEvent"])
        await stage.to(f"#/tasks/curious/{task['id']}?tab=pushes")
        await page.see(f"delivered {count} of {count}".replace(" ", "\n", 1), ".pushes")
        assert [post.sequence for post in stage.receivers.posts] == list(range(1, count + 1))
        await page.see("HTTP 200", ".pushes table")
        await page.type(".redeliver input", "2")
        await page.click(".redeliver button", "Redeliver")
        await page.see("Redelivering from event 2.", ".redeliver")
        await page.until(f"document.querySelectorAll('.pushes tbody tr').length === {2 * count - 1}")
        assert [post.sequence for post in stage.receivers.posts[count:]] == list(range(2, count + 1))
        await page.type(".redeliver input", "99")
        await page.run("document.querySelector('.redeliver').noValidate = true")
        await page.click(".redeliver button", "Redeliver")
        await page.see("must be an event of the task", ".pushes .problem")


async def test_an_event_is_shown_in_each_version(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.send("paint", "curious")
        await page.see("Which color?", ".conversation")
        await page.click(".conversation li:last-child .sequence")
        shown: dict[str, str] = {}
        for form, sign in (("1.0", "statusUpdate"), ("0.3", '"kind": "status-update"'), ("0.1", '"final": true')):
            await page.click(".forms label", form)
            await page.see(sign, ".wire pre")
            shown[form] = await page.text(".wire pre")
        await page.click(".forms label", "protobuf text")
        await page.see("state: TASK_STATE_INPUT_REQUIRED", ".wire pre")
        values: dict[str, Any] = {form: json.loads(text) for form, text in shown.items()}
        assert values["1.0"]["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Which color?"}]
        assert values["0.3"]["status"]["state"] == values["0.1"]["status"]["state"] == "input-required"
        await page.click("[aria-label='Previous event']")
        await page.click(".forms label", "1.0")
        await page.until("!document.querySelector('.wire pre').innerText.includes('Which color')")
        assert not json.loads(await page.text(".wire pre")).get("statusUpdate", {}).get("status", {}).get("message")


async def test_credentials_are_requested_once(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        page = stage.page
        request = ops.CreateKeyRequest(name="ann")
        ann = (await rpc.OpsServiceStub(channel).CreateKey(request, metadata=(("authorization", "Bearer boss"),))).text
        await page.type("#key", "wrong")
        await page.press("Enter")
        await page.see("This key is not valid.", ".sign-in [role=alert]")
        await page.type("#key", ann)
        await page.press("Enter")
        await page.see("0 tasks", ".list")
        await page.reload()
        await page.see("0 tasks", ".list")
        await page.becomes("[sessionStorage.length, localStorage.length, document.cookie]", [1, 0, ""])
        # Without the operator grant, a caller sees its own tasks and a note on hidden information.
        await stage.send("paint", "curious")
        await page.see("Which color?", ".conversation")
        for tab, text in (
            ("execution", "Only operators"),
            ("wire", "Only operators"),
            ("pushes", "This task has no push"),
        ):
            await page.click(f"[data-tab={tab}]")
            await page.see(text, ".panel")


async def test_a_waiting_task_is_explained(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, slots=1) as stage:
        page = stage.page
        task_json = await stage.put("paint", configuration={"taskPushNotificationConfig": {"url": DOWN}})
        stage.receivers.answer(DOWN, then=answered(503))
        # An agent works on it.
        busy = await stage.send("go on")
        await page.click("[data-tab=execution]")
        await page.see("Its agent has been working on it", ".next")
        facts = "document.querySelector('.execution .facts').innerText.replace(/\\s+/g, ' ')"
        for fact in (
            "attempt 1 of 1",
            "this server",
            "unread messages 0",
            "created with A2A 1.0",
            "principal anonymous",
        ):
            await page.until(f"{facts}.includes('{fact}')")
        # The queue is full.
        await stage.send("wait for that")
        await page.click("[data-tab=execution]")
        await page.see("It waits for a free slot here: all 1 are taken", ".next")
        # The task waits for its caller, and its receiver is unavailable.
        await stage.to(f"#/tasks/curious/{task_json['id']}?tab=execution")
        await page.see("It waits for a message from its caller", ".next")
        spoken = {"messageId": "m-red", "role": "ROLE_USER", "taskId": task_json["id"], "parts": [{"text": "red"}]}
        body = {"message": spoken, "configuration": {"returnImmediately": True}}
        async with stage.http.post("/curious/message:send", json=body) as answer:
            assert answer.status == 200
        await page.click("[data-tab=pushes]")
        await page.see("HTTP 503", ".pushes table")
        for fact in ("failing for", "next attempt", "failed attempts for the next event"):
            await page.see(fact, ".pushes .facts")
        # It has ended.
        await stage.to(f"#/tasks/dictation/{busy}?tab=execution")
        await page.see("Its agent has been working on it", ".next")
        stage.conductor.say(None)
        await page.see("Nothing: the task has ended.", ".next")


async def test_a_task_of_an_agent_without_streaming_is_followed(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        await stage.send("word", "plain")
        await stage.page.see("plainly: word", ".conversation")
        await stage.page.see("completed", ".head")
