"""Floor 3: agents. Here, Python functions; each implements `dragoman.ports.Agent`."""
