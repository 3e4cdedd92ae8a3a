"""The operators' API, dragoman.ops.v1, over gRPC and HTTP."""
