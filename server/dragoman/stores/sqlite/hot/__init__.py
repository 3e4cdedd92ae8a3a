"""The optimized paths: group commit, write coalescing, reads on the event loop."""
