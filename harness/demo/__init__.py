"""The demo: a whole release of a small real project on the embedded forge, with no token,
model or network."""
