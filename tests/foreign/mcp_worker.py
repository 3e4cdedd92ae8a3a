"""The playground's commands in a worker, without skills."""

from __future__ import annotations

from dragoman import agent
from dragoman import playground as commands

worker = agent(
    id="worker",
    name="Worker",
    description="Runs the command in the first word of a message, in a process of its own",
    input_modes=("text/plain", "application/json", "application/octet-stream"),
    output_modes=("text/plain", "application/json"),
    direct=True,
)(commands.playground.__wrapped__)
