"""Sends a message to an agent over gRPC, then REST: `python client.py 127.0.0.1:50051 http://127.0.0.1:8080 hello`."""

import sys
from pathlib import Path
from urllib.request import Request, urlopen

import grpc
from google.protobuf import json_format

sys.path.insert(0, str(Path(__file__).with_name("gen")))
from lf.a2a.v1 import a2a_pb2 as a2a
from lf.a2a.v1 import a2a_pb2_grpc as rpc


def request(message_id: str, text: str) -> a2a.SendMessageRequest:
    message = a2a.Message(message_id=message_id, role=a2a.ROLE_USER)
    message.parts.add(text=text)
    return a2a.SendMessageRequest(message=message)


def stream_over_grpc(address: str, text: str) -> None:
    with grpc.insecure_channel(address) as channel:
        for event in rpc.A2AServiceStub(channel).SendStreamingMessage(request("m-grpc", text)):
            print(event.WhichOneof("payload"), *(part.text for part in event.artifact_update.artifact.parts))


def send_over_rest(server: str, text: str) -> None:
    """Sends the same message as JSON, by json_format. A2A-Version chooses the form of the answer."""
    body = json_format.MessageToJson(request("m-rest", text)).encode()
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    with urlopen(Request(f"{server}/message:send", body, headers)) as response:
        task = json_format.Parse(response.read(), a2a.SendMessageResponse()).task
    texts = [part.text for artifact in task.artifacts for part in artifact.parts]
    print(a2a.TaskState.Name(task.status.state), *texts)


grpc_address, http_url, *words = sys.argv[1:]
stream_over_grpc(grpc_address, " ".join(words))
send_over_rest(http_url, " ".join(words))
