"""The one way out of a worker's container: bus, git and model on the director's side, their clients inside.

The one rule: who is calling is known from the socket and a token of that attempt, never from what is sent.
"""
