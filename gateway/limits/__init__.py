"""Budgets of routes and keys: reserved before a call, settled after it, over any number of processes."""
