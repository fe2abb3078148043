"""Pure sizing model: geometry, KV, concurrency, fleet, gateway, money."""
