"""The core: results, tables, journals, retries, budgets, redaction.
It imports nothing of ours and does no I/O."""
