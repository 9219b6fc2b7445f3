"""The worker: takes one issue from a clean clone to an open pull request, inside its container."""
