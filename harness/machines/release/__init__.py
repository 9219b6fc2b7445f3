"""The release: what has landed becomes one merged, tagged and published version."""
