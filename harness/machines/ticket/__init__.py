"""The ticket: one issue that we took on, from first sight to its end."""
