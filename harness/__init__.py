"""A self-hosted daemon that turns labelled issues into validated, reviewed, released code."""

__version__ = "0.1.0"
