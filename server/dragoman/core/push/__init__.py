"""Push notifications: webhook configurations and delivery state."""
