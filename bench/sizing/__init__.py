"""The sizing model: what a deployment handles, from constants that are measured on one server."""
