"""Limits: message sizes, quotas, budgets and admission."""
