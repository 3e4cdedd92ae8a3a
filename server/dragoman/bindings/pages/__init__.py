"""What the HTTP server has for browsers and for monitoring."""
