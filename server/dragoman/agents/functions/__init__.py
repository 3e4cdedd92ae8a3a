"""Python functions as agents: `@agent` declares them, `take_turn` runs them."""
