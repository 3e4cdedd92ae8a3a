"""Sentences of docs/reference/protocol, each tested against the server."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

from tests.docs import errors_page
from tests.docs.protocol_client import DOCS, TENANT, Page, c, served, v01, v03, v1

from dragoman.types import REJECTED, WORKING, can_transition_to


async def test_sentences_for_readers_of_one_source(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        Page("../../how-to/migrating-from-fasta2a.md").says("integers beyond 2^53, more than 24 levels of JSON")
        for value in (2**53 + 1, json.loads('{"a":' * 25 + "1" + "}" * 25)):
            message = {"role": "user", "parts": [{"type": "data", "data": {"n": value}}]}
            assert await server.code("tasks/send", {"id": "a", "message": message}) == -32602
        page = Page("messages.md")
        page.says("The history is that of the task, in every version")
        first = await server.task("echo one")
        second = (await server.call("SendMessage", {"message": v1("echo two", contextId=first["contextId"])}))["result"]
        assert [one["parts"] for one in second["task"]["history"]] == [[{"text": "echo two"}]]
        page.says("by default that a terminal state is final, with `strict=True` a2a-rust's table")
        assert can_transition_to(WORKING, REJECTED)
        assert not can_transition_to(WORKING, REJECTED, strict=True)
        assert not can_transition_to(REJECTED, WORKING)


async def test_versions(tmp_path: Path) -> None:
    page = Page("versions.md")
    async with served(tmp_path) as server:
        page.says("A method of 1.0 without the header is served as 1.0.")
        task = await server.task("echo hi")
        page.says("It decides where calls look alike: for `tasks/get` and its like")
        old = (await server.call("tasks/get", {"id": task["id"]}, **{"A2A-Version": "0.1"}))["result"]
        assert ("kind" in old, old["sessionId"]) == (False, task["contextId"])
        new = (await server.call("tasks/get", {"id": task["id"]}, **{"A2A-Version": "0.3"}))["result"]
        assert (new["kind"], new["contextId"]) == ("task", task["contextId"])
        page.says("readers of 0.1 and of 0.3 both find their fields in it")
        await server.call("tasks/send", {"id": "mine", "message": v01("hi")})
        both = (await server.call("tasks/get", {"id": "mine"}))["result"]["artifacts"][0]
        assert {"artifactId", "index"} <= set(both)
        assert {"kind", "type"} <= set(both["parts"][0])
        page.says("There are no batches (-32600).")
        assert (await server.ask("POST", "/", [])).json["error"]["code"] == -32600
        page.says("A subscription may be a GET or a POST, in 0.3 and in 1.0")
        for method in ("GET", "POST"):
            assert (await server.events(method, f"/v1/tasks/{task['id']}:subscribe"))[0]["task"]["id"] == task["id"]
            assert (await server.ask(method, f"/tasks/{task['id']}:subscribe")).reason == "UNSUPPORTED_OPERATION"
        page.says("A cancel needs no body; `{}`, `null` and the whole request are accepted too.")
        for body in (None, {}, b"null", {"id": task["id"]}):
            assert (await server.ask("POST", f"/tasks/{task['id']}:cancel", body)).reason == "TASK_NOT_CANCELABLE"
        page.says("Success is always 200, never 201; a DELETE is answered `{}`.")
        removed = await server.ask("DELETE", f"/tasks/{task['id']}/pushNotificationConfigs/none")
        assert (removed.status, removed.text) == (200, "{}")
        assert (await server.ask("POST", "/v1/message:send", {"message": c("hi")})).status == 200
        page.says("Unknown fields and query parameters are ignored")
        sent = {"message": {**c("hi"), "novelty": 1}, "more": []}
        assert (await server.ask("POST", "/v1/message:send?more=1", sent)).status == 200
        page.says(
            "except in operators' calls that change something and in Google's form, where they are INVALID_ARGUMENT"
        )
        refused = await server.ask("POST", f"/{TENANT}/message:send?alt=json&prettyPrint=false&key=k", sent)
        assert (refused.status, refused.reason) == (400, "INVALID_PARAMS")
        page.says("`application/a2a+json` goes to callers of 1.0 whose `Accept` names it")
        path = f"/tasks/{task['id']}"
        assert (await server.ask("GET", path)).headers["Content-Type"] == "application/json"
        named = await server.ask("GET", path, Accept="application/a2a+json, application/json")
        assert named.headers["Content-Type"] == "application/a2a+json"
        page.says("compressed (`Content-Encoding: gzip` or `deflate`); answers are never compressed")
        for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            body = pack(json.dumps({"message": v1("hi")}).encode())
            zipped = {"Content-Encoding": coding, "Accept-Encoding": "gzip, deflate"}
            answer = await server.ask("POST", "/message:send", body, **zipped)
            assert (answer.status, answer.headers.get("Content-Encoding")) == (200, None)
        page.says("Another coding is 415, with `Accept-Encoding`.")
        refused = await server.ask("POST", "/message:send", b"{}", **{"Content-Encoding": "br"})
        assert (refused.status, refused.headers["Accept-Encoding"]) == (415, "gzip, deflate")
        page.says("Only a GET of a stream that resumes after the last event of a finished task is 204")
        stream = await server.ask("POST", "/message:stream", {"message": v1("hi")})
        last = {"Last-Event-ID": re.findall(r"id: (\S+)", stream.text)[-1]}
        finished = re.findall(r'"task":{"id":"([^"]+)"', stream.text)[0]
        assert (await server.ask("GET", f"/tasks/{finished}:subscribe", **last)).status == 204
        page.says("HEAD is answered like GET, without a body; for a stream it is rejected (405).")
        for other in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/tasks", path):
            head = await server.ask("HEAD", other)
            assert (head.status, head.text) == (200, "")
        assert (await server.ask("HEAD", f"{path}:subscribe")).status == 405
        page.says("Google's `operations`, its paths behind `/v1alpha` and `/v1beta1`")
        for prefix in ("v1alpha", "v1beta1"):
            assert (await server.ask("GET", f"/{prefix}/{TENANT}/a2a/v1/card")).status == 404
        page.says("VersionNotSupported (-32009), with the versions that are supported")
        assert await server.code("GetTask", {"id": "x"}, **{"A2A-Version": "2.0"}) == -32009
        assert (await server.ask("GET", f"{path}?A2A-Version=2.0")).reason == "VERSION_NOT_SUPPORTED"
        page.says("a call is served by its shape, whatever known version it names")
        for version in ("1", "1.0.1", "1.7", "0.1", "0.2", "0.3.0"):
            assert "result" in await server.call("SendMessage", {"message": v1("hi")}, **{"A2A-Version": version})
        page.says("its `blocking` and its wrapped push configurations are read")
        waits = {"message": v1("sleep 60"), "configuration": {"blocking": False}}
        assert (await server.call("SendMessage", waits))["result"]["task"]["status"]["state"] != "TASK_STATE_COMPLETED"
        page.says("All of them are answered as not found.")
        for path in ("/agent/authenticatedExtendedCard", "/v1/tasks/x/pushNotifications", f"/v1/{TENANT}/operations/x"):
            assert (await server.ask("GET", path)).status == 404
        page.says("A duplicate key in JSON is rejected, and so is an integer beyond 2^53")
        for part in (b'{"text": "a", "text": "b"}', b'{"data": 9007199254740993}'):
            body = b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [%b]}}' % part
            assert (await server.ask("POST", "/message:send", body)).reason == "INVALID_PARAMS"


async def test_messages(tmp_path: Path) -> None:
    page = Page("messages.md")
    async with served(tmp_path) as server:
        page.says(
            "A context id chosen by the caller is used unchanged, up to 512 characters, and is always in the response."
        )
        assert (await server.task("hi", contextId="my own"))["contextId"] == "my own"
        assert await server.code("SendMessage", {"message": v1("hi", contextId="x" * 513)}) == -32602
        value = await server.task("ask")
        page.says("A message with another context id is rejected (InvalidParams, `message.contextId`).")
        wrong = await server.call("SendMessage", {"message": v1("hi", taskId=value["id"], contextId="other")})
        assert "message.contextId" in wrong["error"]["message"]
        page.says("A message that names only its task continues in that task's context.")
        assert (await server.task("blue", taskId=value["id"]))["contextId"] == value["contextId"]
        page.says("| an unknown task id | a new task with that id | TaskNotFound | TaskNotFound |")
        assert await server.code("SendMessage", {"message": v1("hi", taskId="none")}) == -32001
        assert await server.code("message/send", {"message": v03("hi", taskId="none")}) == -32001
        created_value = await server.call("tasks/send", {"id": "none", "message": v01("hi")})
        assert (created_value["result"]["id"], created_value["result"]["status"]["state"]) == ("none", "completed")
        page.says("two messages with one id are two messages")
        assert (await server.task("hi"))["id"] != (await server.task("hi"))["id"]

        page.says("| 0.2, 0.3 over JSON-RPC | unless `blocking: false` |")
        page.says("| 0.3 over gRPC and REST, Google | if there is no configuration, or one with `blocking: true` |")
        page.says("| 1.0 | unless `returnImmediately: true` |")
        long, slow = "sleep 60", "sleep 0.05"
        at_once: list[tuple[str, dict[str, Any]]] = [
            ("/", {"method": "message/send", "params": {"message": v03(long), "configuration": {"blocking": False}}}),
            ("/", {"method": "SendMessage",
                   "params": {"message": v1(long), "configuration": {"returnImmediately": True}}}),
            ("/v1/message:send", {"message": c(long), "configuration": {}}),
            ("/message:send", {"message": v1(long), "configuration": {"returnImmediately": True}}),
        ]  # fmt: skip
        waiting: list[tuple[str, dict[str, Any]]] = [
            ("/", {"method": "message/send", "params": {"message": v03(slow), "configuration": {}}}),
            ("/", {"method": "tasks/send", "params": {"id": "slow", "message": v01(slow)}}),
            ("/", {"method": "SendMessage", "params": {"message": v1(slow), "configuration": {}}}),
            ("/v1/message:send", {"message": c(slow)}),
            ("/v1/message:send", {"message": c(slow), "configuration": {"blocking": True}}),
            ("/message:send", {"message": v1(slow)}),
        ]
        for path, body in (*at_once, *waiting):
            envelope: dict[str, Any] = {"jsonrpc": "2.0", "id": 7} if path == "/" else {}
            text = (await server.ask("POST", path, {**envelope, **body})).text.lower()
            assert ("completed" in text) is ((path, body) in waiting), text

        page.says("| 1.0 | all | no `history` at all | InvalidParams |")
        page.says("| before | all | all | InvalidParams |")
        path = f"tasks/{value['id']}"
        assert len((await server.ask("GET", f"/{path}")).json["history"]) == 3
        assert "history" not in (await server.ask("GET", f"/{path}?historyLength=0")).json
        page.says("and in the first Task of a send's stream")
        short = {"message": v1("hi"), "configuration": {"historyLength": 0}}
        assert "history" not in (await server.events("POST", "/message:stream", short))[0]["task"]
        assert len((await server.ask("GET", f"/v1/{path}?historyLength=0")).json["history"]) == 3
        old = await server.call("tasks/get", {"id": value["id"], "historyLength": 0})
        assert len(old["result"]["history"]) == 3
        for prefix in ("/", "/v1/"):
            assert (await server.ask("GET", f"{prefix}{path}?historyLength=-1")).reason == "INVALID_PARAMS"

        page.says("`acceptedOutputModes` is passed to the agent (`turn.accepts`) and rejects nothing.")
        odd = {"message": v1("hi"), "configuration": {"acceptedOutputModes": ["image/x-unheard-of"]}}
        assert "result" in await server.call("SendMessage", odd)
        page.says("Others are rejected with ContentTypeNotSupported")
        part = {"text": "x", "mediaType": "application/x-unsupported"}
        assert await server.code("SendMessage", {"message": v1("", parts=[part])}) == -32005

        page.says("| has ended, 1.0 | UnsupportedOperation |")
        page.says("| has ended, before 1.0 | InvalidParams; `tasks/send` of 0.1 restarts it |")
        assert await server.code("SendMessage", {"message": v1("more", taskId=value["id"])}) == -32004
        assert await server.code("message/send", {"message": v03("more", taskId=value["id"])}) == -32602
        assert "result" in await server.call("tasks/send", {"id": "none", "message": v01("more")})

        page.says("| has ended, or was canceled before | TaskNotCancelable |")
        page.says("| does not exist, or is not yours | TaskNotFound |")
        page.says("| waits | CANCELED |")
        waits = await server.task("ask")
        assert (await server.call("CancelTask", {"id": waits["id"]}))["result"]["status"][
            "state"
        ] == "TASK_STATE_CANCELED"
        for id in (waits["id"], value["id"]):
            assert await server.code("CancelTask", {"id": id}) == -32002
        assert await server.code("CancelTask", {"id": "nowhere"}) == -32001


async def test_streams(tmp_path: Path) -> None:
    page = Page("streams.md")
    async with served(tmp_path, keepalive=0.05) as server:
        page.says("| 1.0 | the Task, or one Message and the end |")
        values = await server.events("POST", "/message:stream", {"message": v1("stream 2")})
        assert [next(iter(event)) for event in values] == [
            "task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate",
        ]  # fmt: skip
        page.says("The first update of an artifact in a turn never appends.")
        assert [event["artifactUpdate"].get("append", False) for event in values[2:4]] == [False, True]
        [message] = await server.events("POST", "/message:stream", {"message": v1("reply hi")})
        assert list(message) == ["message"]
        page.says("| 0.1 | a status; there is no Task")
        first, *_, last = await server.stream("tasks/sendSubscribe", {"id": "a", "message": v01("hi")})
        assert ("status" in first["result"], first["result"]["final"], last["result"]["final"]) == (True, False, True)
        for text, state in (("ask", "input-required"), ("auth", "auth-required")):
            page.says("| INPUT_REQUIRED | ends |")
            page.says("| AUTH_REQUIRED, and the turn is over (`turn.need_auth`) | ends; Google's form: stays open |")
            end = (await server.stream("message/stream", {"message": v03(text)}))[-1]["result"]
            assert (end["status"]["state"], end["final"]) == (state, True)
        page.says("JSON-RPC before 1.0: ends, with `final: true`")
        waits = await server.task("ask")
        assert (await server.stream("tasks/resubscribe", {"id": waits["id"]}))[-1]["result"]["status"]["state"] == (
            "input-required"
        )
        page.says("| to one that has ended, a finished task | UnsupportedOperation | -32004 | the Task, then the end |")
        done = await server.task()
        assert await server.code("SubscribeToTask", {"id": done["id"]}) == -32004
        [refused] = await server.stream("tasks/resubscribe", {"id": done["id"]})
        assert refused["error"]["code"] == -32004
        [shown] = await server.events("GET", f"/v1/tasks/{done['id']}:subscribe")
        assert shown["task"]["id"] == done["id"]
        page.says("| to an agent that does not stream | UnsupportedOperation | -32004 | UnsupportedOperation |")
        assert await server.code("SendStreamingMessage", {"message": v1("hi")}, "/still") == -32004
        [refused] = await server.stream("message/stream", {"message": v03("hi")}, "/still")
        assert refused["error"]["code"] == -32004
        page.says("`Cache-Control: no-cache` and `X-Accel-Buffering: no` prevent proxies from buffering.")
        page.says("comes a comment (`: keep-alive`), which readers skip")
        page.says("One event is `id: CURSOR`, then one `data: ` line of JSON")
        quiet = await server.ask("POST", "/message:stream", {"message": v1("sleep 0.3")})
        assert (quiet.headers["Cache-Control"], quiet.headers["X-Accel-Buffering"]) == ("no-cache", "no")
        assert ": keep-alive\n\n" in quiet.text
        assert re.match(r"id: [0-9a-f]{8}\.[0-9a-f]{8}\.1\ndata: \{.*\}\n\n", quiet.text)
        page.says("get a JSON array, written element by element; `alt=sse` asks for events")
        path = f"/v1/{TENANT}/a2a/v1/message:stream"
        assert len((await server.ask("POST", f"{path}?alt=json", {"message": c("hi")})).json) == 3
        assert len(await server.events("POST", f"{path}?alt=sse", {"message": c("hi")})) == 3
        page.says(
            "| before the first event or keep-alive | status and body | a JSON answer, status 200 | one SSE event"
        )
        lost = await server.ask("POST", "/message:stream", {"message": v1("hi", taskId="none")})
        assert (lost.status, lost.reason) == (404, "TASK_NOT_FOUND")
        assert await server.code("SendStreamingMessage", {"message": v1("hi", taskId="none")}) == -32001
        [event] = await server.stream("message/stream", {"message": v03("hi", taskId="none")})
        assert event["error"]["code"] == -32001


async def test_lists(tmp_path: Path) -> None:
    page = Page("lists.md")
    async with served(tmp_path) as server:
        page.says("`tasks`, `nextPageToken`, `pageSize`, `totalSize` are always present, even if empty or 0.")
        empty = (await server.call("ListTasks"))["result"]
        assert empty == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
        ids = [(await server.task(f"hello {number}"))["id"] for number in range(3)]
        page.says("latest status change first")
        page.says("`pageSize` is the requested size, not the number of returned tasks")
        first = (await server.call("ListTasks", {"pageSize": 2}))["result"]
        assert ([task["id"] for task in first["tasks"]], first["totalSize"]) == (ids[:0:-1], 3)
        more = {"pageSize": 2, "pageToken": first["nextPageToken"]}
        second = (await server.call("ListTasks", more))["result"]
        assert ([task["id"] for task in second["tasks"]], second["nextPageToken"], second["pageSize"]) == (
            ids[:1],
            "",
            2,
        )
        page.says("with the same filters; anything else is InvalidParams")
        for wrong in ({"pageToken": "x"}, {**more, "contextId": "y"}, {"pageSize": 0}, {"pageSize": 101}):
            assert await server.code("ListTasks", wrong) == -32602
        page.says("without it there is no `artifacts` key at all")
        assert "artifacts" not in first["tasks"][0]
        with_artifacts = (await server.call("ListTasks", {"includeArtifacts": True}))["result"]["tasks"][0]
        assert with_artifacts["artifacts"]
        page.says("also `lastUpdatedAfter` (Go), `lastUpdatedTime` (`a2a.v1`)")
        later = "2999-01-01T00:00:00Z"
        for path in (f"/tasks?statusTimestampAfter={later}", f"/tasks?lastUpdatedAfter={later}"):
            assert (await server.ask("GET", path)).json["totalSize"] == 0
        assert not (await server.ask("GET", f"/v1/tasks?lastUpdatedTime={later}")).json.get("tasks")
        page.says("In `a2a.v1` 0 means omitted")
        assert len((await server.ask("GET", "/v1/tasks?pageSize=0")).json["tasks"]) == 3
        assert (await server.ask("GET", "/tasks?status=completed")).json["totalSize"] == 3
        page.says("as `tasks/list` in fasta2a 2.x and a2a-rust")
        assert len((await server.call("tasks/list", {}))["result"]["tasks"]) == 3
        page.says("1.0 answers `{configs, nextPageToken}`, 0.2 and 0.3 over JSON-RPC a bare array")
        assert (await server.call("tasks/pushNotificationConfig/list", {"id": ids[0]}))["result"] == []
        assert (await server.call("ListTaskPushNotificationConfigs", {"taskId": ids[0]}))["result"] == {"configs": []}


async def test_cards(tmp_path: Path) -> None:
    page = Page("cards.md")
    async with served(tmp_path) as server:
        path = "/.well-known/agent-card.json"
        usual = await server.ask("GET", path)
        page.says("gRPC is listed only with `--public-grpc`, or for readers that send `A2A-Extensions:")
        assert "GRPC" not in usual.text
        both = await server.ask("GET", path, **{"A2A-Extensions": "urn:dragoman:grpc:v1"})
        assert {"supportedInterfaces", "url", "preferredTransport", "additionalInterfaces"} <= set(both.json)
        page.says(
            "They may be cached for five minutes (`Cache-Control: public, max-age=300`), have an `ETag`,"
            " answer `If-None-Match` with 304,"
            " and vary by `A2A-Version` and `A2A-Extensions`."
        )
        assert (both.headers["Cache-Control"], both.headers["Vary"]) == (
            "public, max-age=300",
            "A2A-Version, A2A-Extensions",
        )
        assert (await server.ask("GET", path, **{"If-None-Match": usual.headers["ETag"]})).status == 304
        page.says("the card of that version alone")
        assert "url" not in (await server.ask("GET", path, **{"A2A-Version": "1.0"})).json
        assert "supportedInterfaces" not in (await server.ask("GET", path, **{"A2A-Version": "0.3"})).json
        page.says("Versions are exactly `1.0` and `0.3`")
        shown = [(one["protocolBinding"], one["protocolVersion"]) for one in both.json["supportedInterfaces"]]
        page.says("Interfaces: JSON-RPC, REST, gRPC of 1.0, in this order, then those of 0.3.")
        assert shown[:3] == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("GRPC", "1.0")]
        assert {version for _, version in shown[3:]} == {"0.3"}
        page.says("gRPC is `host:port` for 1.0, and has a scheme for 0.3.")
        urls = [one["url"] for one in both.json["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
        assert ["://" in url for url in urls] == [False, True]
        page.says("An agent that is not the root has no gRPC interface for 0.3")
        other = (await server.ask("GET", "/still/.well-known/agent-card.json")).json["supportedInterfaces"]
        assert ("GRPC", "0.3") not in [(one["protocolBinding"], one["protocolVersion"]) for one in other]
        page.says("if none is declared UnsupportedOperation")
        assert (await server.ask("GET", "/extendedAgentCard")).reason == "UNSUPPORTED_OPERATION"
        page.says("if none is declared -32007")
        assert await server.code("agent/getAuthenticatedExtendedCard") == -32007
        page.says("calls that do not name it: ExtensionSupportRequired, and no task")
        send = {"message": v1("hi")}
        assert await server.code("SendMessage", send, "/strict") == -32008
        named = {"A2A-Extensions": "https://x.example/needed, urn:unknown"}
        page.says("Unknown extensions are ignored.")
        answer = await server.ask("POST", "/strict/message:send", send, **named)
        assert (answer.status, answer.headers["A2A-Extensions"]) == (200, "https://x.example/needed")
        assert (await server.ask("GET", "/strict/tasks")).json["totalSize"] == 1
        page.says("rejected, with a list of the agents: over JSON-RPC -32602, over REST 404")
        assert await server.code("SendMessage", {**send, "tenant": "nobody"}) == -32602
        assert (await server.ask("GET", "/nobody/tasks")).status == 404
        page.says("tasks of different scopes do not see each other")
        task = await server.task()
        assert (await server.ask("GET", f"/v1/{TENANT}/a2a/v1/tasks/{task['id']}")).status == 404
        assert (await server.ask("GET", f"/playground/tasks/{task['id']}")).status == 200
        page.says("The tenant in the path takes precedence over the one in the body.")
        assert "result" in await server.call("SendMessage", {**send, "tenant": "nobody"}, "/playground")


async def test_webhooks(tmp_path: Path) -> None:
    page = Page("webhooks.md")
    hook = "http://127.0.0.1:18765/hook"  # nobody is there, and nobody is called: the task has nothing to tell
    async with served(tmp_path) as server:
        waits = (await server.task("ask"))["id"]
        page.says("A configuration without an id gets the id of its task.")
        page.says("Secrets are not returned")
        sent = {"taskId": waits, "pushNotificationConfig": {"url": hook, "token": "t0k"}}
        value = (await server.call("tasks/pushNotificationConfig/set", sent))["result"]["pushNotificationConfig"]
        assert (value["id"], value["url"], "token" in value) == (waits, hook, False)
        page.says("| get | by id, which is required | by `pushNotificationConfigId`, or the oldest |")
        assert await server.code("GetTaskPushNotificationConfig", {"taskId": waits}) == -32602
        found = await server.call("tasks/pushNotificationConfig/get", {"id": waits})
        assert found["result"]["pushNotificationConfig"]["url"] == hook
        oldest = await server.call("tasks/pushNotification/get", {"id": waits}, **{"A2A-Version": "0.1"})
        assert oldest["result"]["pushNotificationConfig"]["url"] == hook
        page.says("POST; the whole request, the configuration, or its content")
        inner = {"id": "c", "url": hook}
        config = {"name": f"tasks/{waits}/pushNotificationConfigs/c", "pushNotificationConfig": inner}
        for body in (config, {"parent": f"tasks/{waits}", "configId": "c", "config": config}, inner):
            answer = await server.ask("POST", f"/v1/tasks/{waits}/pushNotificationConfigs", body)
            assert (answer.status, answer.json["pushNotificationConfig"]["id"]) == (200, "c")
        page.says("The same id again replaces it.")
        listed = (await server.call("ListTaskPushNotificationConfigs", {"taskId": waits}))["result"]["configs"]
        assert [one["id"] for one in listed] == [waits, "c"]
        page.says("so two calls without an id make two configurations")
        new = [await server.call("CreateTaskPushNotificationConfig", {"taskId": waits, "url": hook}) for _ in range(2)]
        assert len({waits, "c", *(one["result"]["id"] for one in new)}) == 4
        page.says("Deleting a missing configuration is not an error; getting it is (-32001, 404)")
        values = {"taskId": waits, "id": "none"}
        assert (await server.call("DeleteTaskPushNotificationConfig", values)) == {
            "jsonrpc": "2.0",
            "id": 7,
            "result": None,
        }
        assert await server.code("GetTaskPushNotificationConfig", values) == -32001
        assert (await server.ask("GET", f"/tasks/{waits}/pushNotificationConfigs/none")).status == 404
        page.says("every operation on a task that does not exist or is not yours")
        assert await server.code("CreateTaskPushNotificationConfig", {"taskId": "none", "url": hook}) == -32001
        page.says("An ended task accepts them too")
        ended = (await server.task())["id"]
        assert "result" in await server.call("CreateTaskPushNotificationConfig", {"taskId": ended, "url": hook})
        page.says("is rejected when it is set, with the field and the rule")
        wrong = await server.call("CreateTaskPushNotificationConfig", {"taskId": waits, "url": "ftp://x.example"})
        assert wrong["error"]["message"].startswith("url: ")


async def test_errors(tmp_path: Path) -> None:
    page = Page("errors.md")
    async with served(tmp_path) as server:
        page.says("A wrong method is 405 with `Allow`, a wrong path 404")
        wrong = await server.ask("GET", "/message:send")
        assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")
        assert (await server.ask("GET", "/nothing/here/at-all")).status == 404
        page.says("| invalid JSON | -32700, with `id: null` | 400 | 400 |")
        none = await server.ask("POST", "/", b"{")
        assert (none.status, none.json["error"]["code"], none.json["id"]) == (200, -32700, None)
        page.says("a request line of more than 8 KiB (414, a query that is too long)")
        assert (await server.ask("GET", f"/tasks?pageToken={'a' * 9000}")).status == 414
        page.says("| a batch, a wrong `jsonrpc`, no method | -32600 |")
        assert (await server.ask("POST", "/", {"jsonrpc": "1.0", "id": 1, "method": "x"})).json["error"][
            "code"
        ] == -32600
        page.says("| an unknown method, or path | -32601 | 404 | 404 |")
        assert await server.code("Nope") == -32601
        page.says("| another media type of the body | -32005 | 400 | 415 |")
        page.says("a page too large | -32602 | 400 | 422 |")
        for path, body, kind, status in (
            ("/", b"x", "text/plain", 200),
            ("/message:send", b"x", "text/plain", 400),
            ("/v1/message:send", b"x", "text/plain", 415),
            ("/message:send", b"{", "application/json", 400),
            ("/v1/message:send", b"{", "application/json", 400),
            ("/message:send", b"{}", "application/json", 400),
            ("/v1/message:send", b"{}", "application/json", 422),
        ):
            assert (await server.ask("POST", path, body, **{"Content-Type": kind})).status == status, path
        page.says("Before 1.0, the texts of eleven numbers are sent word for word")
        page.says('-32700 "Invalid JSON payload", -32600 "Request payload validation error", -32601 "Method not found"')
        page.says('-32602 "Invalid parameters", -32001 "Task not found", -32002 "Task not cancelable"')
        assert (await server.call("tasks/get", {"id": "none"}))["error"] == {
            "code": -32001,
            "message": "Task not found",
        }
        page.says("Before 1.0 it is present only if it adds to the text.")
        assert (await server.call("GetTask", {"id": "none"}))["error"] == in_json("Over JSON-RPC")["error"]
        assert (await server.ask("GET", "/v1/tasks/none")).json == in_json("Over REST")
        assert (await server.ask("GET", "/tasks/none")).json == {"error": in_json("Over REST")["error"]}


def in_json(section: str) -> Any:
    text = (DOCS / "reference" / "protocol" / "errors.md").read_text("utf-8")
    return json.loads(text.split(f"## {section}")[1].split("```json")[1].split("```")[0])


def test_the_table_of_errors_is_up_to_date() -> None:
    text = errors_page.PAGE.read_text("utf-8")
    assert text == errors_page.page(text), "docs/reference/protocol/errors.md is old: make protocol-pages"
