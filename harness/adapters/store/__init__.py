"""The two real stores: SQL for the director, a synced file for a worker; and the lease on a data folder."""
