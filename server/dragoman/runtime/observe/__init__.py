"""What operators see: explain, metrics, audit log, traces."""
