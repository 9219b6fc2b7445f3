"""What touches the outside: one module a thing, each behind a port of `harness.ports`."""
