"""The bindings: gRPC and REST, over one method table (`methods.py`).

`grpc.serve` and `http.serve` are all that the composition root needs. They take the operations, the cards and
their own options, and are lifetimes: inside, the server listens; on the way out it ends streams and stops.
"""
