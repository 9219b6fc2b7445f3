"""The machines: one folder each, with its states, table, data and fold. What decides does no I/O."""
