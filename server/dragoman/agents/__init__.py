"""Layer 3: agents. Functions, workers and upstreams implement `dragoman.ports.Agent`."""
