"""The OpenAPI document of the REST routes."""
