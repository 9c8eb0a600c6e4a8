"""How a body is cut into items and put together again, one module for each wire format."""
