"""grpcio-tools has the generator of Python's gRPC stubs inside its protoc only; here it is as a plugin for buf."""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
response = plugin_pb2.CodeGeneratorResponse(supported_features=1)
with tempfile.TemporaryDirectory() as folder:
    image = Path(folder, "image.binpb")
    image.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
    out = Path(folder, "out")
    out.mkdir()
    code = protoc.main(
        ["protoc", f"--descriptor_set_in={image}", f"--grpc_python_out={out}", *request.file_to_generate]
    )
    if code:
        sys.exit(code)
    for path in sorted(out.rglob("*.py")):
        response.file.add(name=path.relative_to(out).as_posix(), content=path.read_text("utf-8"))
sys.stdout.buffer.write(response.SerializeToString())
