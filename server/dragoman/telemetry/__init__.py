"""Showing others how the server is, in forms that they know: adapters, one external form each."""
