"""Who may call: authenticators."""
