"""The seeded simulator: the real machines over memory adapters, one process, a virtual clock."""
