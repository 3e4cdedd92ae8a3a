"""Servers under load: their start, the bare transports, our agents, and prefilled stores."""
