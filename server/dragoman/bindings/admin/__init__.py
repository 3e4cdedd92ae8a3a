"""The operators' service, `dragoman.ops.v1`, over gRPC and HTTP."""
