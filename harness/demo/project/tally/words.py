"""Counting words in a text."""


def count(text):
    """How often each word occurs, as a dict."""
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return found
