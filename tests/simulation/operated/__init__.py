"""Histories in which operators act: erasures, reruns, paused agents, quotas, and changes of webhooks."""
