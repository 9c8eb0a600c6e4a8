"""How a model call is made: the port, its adapters, and the simulated provider."""
