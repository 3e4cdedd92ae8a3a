"""What is attached to the core and its adapters; each extension brings libraries of its own and may be absent."""
