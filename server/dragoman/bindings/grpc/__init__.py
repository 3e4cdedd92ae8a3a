"""gRPC: the server, its port, and the service that workers call."""
