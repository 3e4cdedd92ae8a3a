"""Settings: fields, value types, and where values come from."""
