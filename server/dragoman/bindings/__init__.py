"""Protocol bindings: A2A over gRPC and HTTP, from one method table (`method_table.py`).

`grpc.server.serve_grpc` and `http.server.serve_http` are async context managers: the server listens while the block
runs, then ends its streams and stops.
"""
