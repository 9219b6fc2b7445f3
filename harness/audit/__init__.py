"""The record of what happened: sealed in bundles, verified, replayed, explained, compared and handed on."""
