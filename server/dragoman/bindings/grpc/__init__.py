"""gRPC: the A2A server, its port, and the worker service."""
