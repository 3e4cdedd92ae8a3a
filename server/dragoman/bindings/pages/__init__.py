"""Pages for browsers, and endpoints for monitoring."""
