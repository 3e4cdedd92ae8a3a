"""What every store does the same way, whatever its database."""
