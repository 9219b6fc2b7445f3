"""The only place that picks adapters: a director's world, and a worker's."""
