"""Code that both stores use, without any SQL dialect."""
