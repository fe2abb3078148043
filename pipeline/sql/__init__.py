"""The models of the lake: one ``.sql`` file each, and the little Python that binds and runs them."""
