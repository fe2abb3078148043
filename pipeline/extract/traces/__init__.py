"""Trace sources: recorded or published calls that enter the lake without a proxy, one module a kind."""
