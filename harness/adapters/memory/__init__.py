"""Every port in memory: for tests, the simulator and dry runs."""
