"""LiteLLM proxy callback that tells who is working, what was reused and what the gateway cost."""
