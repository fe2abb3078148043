"""Energy per window and boundary."""
