"""Push notifications: what is due, delivering it, per-host circuit breaker."""
