"""The command `serve`: options, server, processes and reload."""
