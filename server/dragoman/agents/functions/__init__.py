"""Python functions as agents: declared with `@agent`, run turn by turn."""
