"""Outbound network policy: addresses and URLs the server may call."""
