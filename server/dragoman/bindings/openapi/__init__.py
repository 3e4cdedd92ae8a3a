"""The OpenAPI description of the REST routes."""
