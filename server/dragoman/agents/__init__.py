"""Layer 3: agents. Functions, workers, executors and upstreams implement `dragoman.ports.Agent`."""
