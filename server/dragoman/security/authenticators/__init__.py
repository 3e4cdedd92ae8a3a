"""Authenticators of static tokens, API keys and JWTs."""
