"""Sends a message to an agent: `python client.py 127.0.0.1:50051 hello`."""

import sys
import uuid
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).with_name("gen")))
from lf.a2a.v1 import a2a_pb2 as a2a
from lf.a2a.v1 import a2a_pb2_grpc as rpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    message = a2a.Message(message_id=str(uuid.uuid4()), role=a2a.ROLE_USER)
    message.parts.add(text=" ".join(sys.argv[2:]))
    for event in rpc.A2AServiceStub(channel).SendStreamingMessage(a2a.SendMessageRequest(message=message)):
        print(event.WhichOneof("payload"), *(part.text for part in event.artifact_update.artifact.parts))
