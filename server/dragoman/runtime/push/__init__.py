"""Push notifications: scheduler, delivery, per-host circuit breaker."""
