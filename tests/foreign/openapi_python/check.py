"""openapi-python-client 0.29.1: a client generated from the server's own /openapi.json."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish

check = Checks("openapi-python-client")
NAME = "generated"


class Generated:
    """A generated package, and its client."""

    def __init__(self, http: str) -> None:
        self._client = self._module("client").Client(base_url=http)
        self.models = self._module("models")

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{NAME}.{name}")

    def call(self, operation: str, **given: Any) -> Any:
        """The response: `.status_code`, and `.parsed`, in the types of the document."""
        api = self._module(f"api.a2a_1_0.{operation}")
        return api.sync_detailed(client=self._client, **given)

    def send(self, text: str) -> Any:
        models = self.models
        message = models.LfA2AV1Message(
            message_id=uuid.uuid4().hex, role=models.LfA2AV1Role.ROLE_USER, parts=[models.LfA2AV1Part(text=text)]
        )
        return self.call("v_1_send_message", body=models.LfA2AV1SendMessageRequest(message=message)).parsed


@check
def nothing_of_the_document_is_left_out(generated: Generated) -> None:
    names = {name for name in vars(generated.models) if name[0].isupper()}
    assert {"Error", "Error03", "LfA2AV1SendMessageResponse", "A2AV1SendMessageResponse"} <= names


@check.of("send", "get", "list")
def it_sends_gets_and_lists(generated: Generated) -> None:
    task = generated.send("echo hello").task
    assert task.status.state == generated.models.LfA2AV1TaskState.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text == "hello"
    assert generated.call("v_1_get_task", task=task.id).parsed == task
    listed = generated.call("v_1_list_tasks", context_id=task.context_id, include_artifacts=True).parsed
    assert [one.id for one in listed.tasks] == [task.id]


@check.of("errors")
def it_reads_errors(generated: Generated) -> None:
    missing = generated.call("v_1_get_task", task="no-such-task")
    assert missing.status_code == 404
    assert isinstance(missing.parsed, generated.models.Error)
    assert missing.parsed.error.details[0].reason == "TASK_NOT_FOUND"
    invalid = generated.call("v_1_list_tasks", page_size=1000)
    (violation,) = invalid.parsed.error.details[1].field_violations
    assert (invalid.status_code, violation.field) == (400, "pageSize")


def generate(http: str, folder: str) -> None:
    """Generates the package. The generator leaves out what it cannot read, with a warning: then it fails."""
    command = [sys.executable, "-m", "openapi_python_client", "generate"]
    config = Path(folder, "config.yaml")
    config.write_text("post_hooks: []\n")  # else it formats with ruff
    done = subprocess.run(
        [*command, "--url", f"{http}/openapi.json", "--output-path", f"{folder}/{NAME}", "--meta", "none",
         "--config", str(config), "--fail-on-warning"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, folder)


def main() -> bool:
    where = arguments()
    with tempfile.TemporaryDirectory() as folder:
        generate(where.http, folder)
        return asyncio.run(check.run("generated from OpenAPI", Generated(where.http)))


finish(main())
