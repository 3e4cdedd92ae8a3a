"""A worker that runs commands and reports its process id."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from fasta2a import Worker


class CounterWorker(Worker[dict[str, int]]):  # type: ignore[misc]  # mypy does not find this fasta2a
    """A counter."""

    async def run_task(self, params: Any) -> None:
        id, context = params["id"], params["context_id"]
        word, _, rest = params["message"]["parts"][0]["text"].partition(" ")
        await self.storage.update_task(id, state="working", new_messages=[agent_message(str(os.getpid()))])
        if word == "die":
            os._exit(3)
        if word == "ask":
            questions = [agent_message("one or two?"), agent_message("which one?")]
            task = await self.storage.update_task(id, state="input-required", new_messages=questions)
            assert task["history"][-1]["parts"] == [{"text": "which one?"}]
            return
        if word == "draft":
            draft = {"artifact_id": "draft", "parts": [{"text": "a draft"}]}
            await self.storage.update_task(id, state="input-required", new_artifacts=[draft])
            return
        if word in ("once", "resume"):  # dies in its first attempt only
            try:
                Path(rest).touch(exist_ok=False)
                os._exit(3)
            except FileExistsError:
                pass
        if word == "resume":
            rest = " ".join(one["artifact_id"] for one in (await self.storage.load_task(id))["artifacts"])
        if word == "label":  # as with fasta2a's own storage, which returns the stored task
            task = await self.storage.load_task(id)
            task["metadata"][rest] = {"turns": len(task["metadata"])}
        if word == "given":
            data = [part["data"] for part in params["message"]["parts"][1:]]
            rest = str((params.get("history_length"), params.get("metadata"), params["message"].get("metadata"), data))
            others = await self.storage.load_task("nope"), await self.storage.load_context("never-seen")
            rest += f" {others}"
        if word == "withdraw":
            await self.storage.update_task(id, state="canceled", new_messages=[agent_message("not worth it")])
            return
        if word == "publish":  # without a word in the storage
            status = {"state": rest, "message": agent_message("only published")}
            event = {"status_update": {"task_id": id, "context_id": context, "status": status}}
            await self.broker.event_bus.emit(id, event)
            return
        if word == "delegate":
            other = f"of-{context}"  # both tasks write the state of their conversation
            task = await self.storage.submit_task(other, user_message(rest))
            await self.broker.run_task({"id": task["id"], "context_id": other, "message": task["history"][0]})
            while task["status"]["state"] in ("submitted", "working"):
                task = await self.storage.load_task(task["id"])
            rest = f"{task['status']['state']} {task['artifacts'][-1]['parts'][0]['text']}"
        if word == "recall":
            await self.broker.cancel_task({"id": rest, "metadata": {"why": "recalled"}})
        if word == "hang":
            await asyncio.sleep(1000)
        if word == "block":
            time.sleep(1000)  # noqa: ASYNC251  # as careless executors do
        if word == "print":
            print("printed by the executor")
            print("written by the executor", file=sys.stderr)
            logging.getLogger("counter").warning("logged by the executor")
        if word == "read":
            rest = sys.stdin.read() if sys.stdin else ""
        if word == "env":
            rest = " ".join(name for name in sorted(os.environ) if name.startswith(("DRAGOMAN_", "COUNTER_"))) or "none"
        count = await self.storage.load_context(context) or {"turns": 0}
        await self.storage.update_context(context, {"turns": count["turns"] + 1})
        texts = [{"text": rest or str(count["turns"])}]
        await self.storage.update_task(id, state="completed", new_artifacts=[{"artifact_id": "output", "parts": texts}])

    async def cancel_task(self, params: Any) -> None:
        if "metadata" in params:
            text = agent_message(params["metadata"]["why"])
            await self.storage.update_task(params["id"], state="canceled", new_messages=[text])


class Another(CounterWorker):
    def __init__(self, broker: Any, storage: Any, model: str) -> None:
        super().__init__(broker, storage)


def user_message(text: str) -> Any:
    return {"role": "user", "parts": [{"text": text}], "message_id": "m"}


def agent_message(text: str) -> Any:
    return {"role": "agent", "parts": [{"text": text}], "message_id": "m"}
