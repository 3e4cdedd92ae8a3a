"""The server's certificate, client certificates and revocations."""
