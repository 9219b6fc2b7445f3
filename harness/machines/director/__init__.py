"""The director: plans a release, claims issues, watches over attempts, finalizes and broadcasts."""
