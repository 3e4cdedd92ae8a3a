"""Calling other A2A servers: transports, errors, TLS and retries."""
