"""The append-only record of what every model call was sent."""
