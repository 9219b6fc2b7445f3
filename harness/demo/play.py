"""What the demo's issues ask for, and what its scripted agent does about each.

The one rule: everything is real but the agent's thinking: real files, real tests, real rework.
"""

from __future__ import annotations

from typing import Any

ISSUES: tuple[tuple[str, str], ...] = (
    ("Count words regardless of case", "`count('A a')` gives two entries. It should give one."),
    ("Add a function for the longest word", "`longest(text)`; the first one when several are equally long."),
    ("Count faster than light", "Please make `count` finish before it is called."),
    ("Write the counts as a report", "One line a word. I am not sure which separator is best."),
    ("Say in the README how to use it", "A short example is enough."),
)

WORDS = '''"""Counting words in a text."""


def count(text):
    """How often each word occurs, as a dict; upper and lower case are the same."""
    found = {}
    for word in text.lower().split():
        found[word] = found.get(word, 0) + 1
    return found
'''
CASE_TEST = """import unittest

from tally import count


class CaseTest(unittest.TestCase):
    def test_case_does_not_matter(self):
        self.assertEqual(count("A a"), {"a": 2})
"""
LONGEST_WRONG = '''"""The longest word."""


def longest(text):
    """The longest word of a text; the first one when several are equally long."""
    return sorted(text.split(), key=len)[-1]
'''
LONGEST = '''"""The longest word."""


def longest(text):
    """The longest word of a text; the first one when several are equally long, "" when there is none."""
    return max(text.split(), key=len, default="")
'''
LONGEST_TEST = """import unittest

from tally.longest import longest


class LongestTest(unittest.TestCase):
    def test_first_of_equals(self):
        self.assertEqual(longest("one two"), "one")

    def test_nothing(self):
        self.assertEqual(longest(""), "")
"""
SPEED_TEST = """import time
import unittest

from tally import count


class SpeedTest(unittest.TestCase):
    def test_done_before_it_began(self):
        began = time.perf_counter()
        count("a b c")
        self.assertLess(time.perf_counter() - began, 0)
"""
REPORT = '''"""Counts as a report."""

from tally.words import count


def report(text, separator={separator!r}):
    """One line a word: the word, the separator, the count."""
    return "\\n".join(f"{{word}}{{separator}}{{n}}" for word, n in sorted(count(text).items()))
'''
REPORT_TEST = """import unittest

from tally.report import report


class ReportTest(unittest.TestCase):
    def test_one_line_a_word(self):
        self.assertEqual(report("b a b"), "a\\t1\\nb\\t2")
"""
README = """# tally

Counts words.

    >>> from tally import count
    >>> count("to be or not to be")
    {'to': 2, 'be': 2, 'or': 1, 'not': 1}
"""
QUESTION = "Which separator should stand between the word and its count: a tab, a comma, or a space?"
ANSWER = "A tab, please: it never occurs inside a word."


def play() -> dict[str, Any]:
    """The rounds of each issue, in the form that the scripted agent reads."""
    failing = {
        "say": "I tried again; the machine is too slow.",
        "write": {"tests/test_speed.py": SPEED_TEST},
    }
    return {
        "issues": {
            "1": [
                {
                    "say": "Words are compared in lower case.",
                    "write": {"tally/words.py": WORDS, "tests/test_case.py": CASE_TEST},
                }
            ],
            "2": [
                {
                    "say": "Added longest().",
                    "write": {"tally/longest.py": LONGEST_WRONG, "tests/test_longest.py": LONGEST_TEST},
                },
                {
                    "say": "The first of equals wins, and nothing gives an empty word.",
                    "write": {"tally/longest.py": LONGEST},
                },
            ],
            "3": [failing],
            "4": [
                {"say": "I need to know the separator.", "question": QUESTION},
                {
                    "say": "A tab, as answered.",
                    "write": {
                        "tally/report.py": REPORT.format(separator="\t"),
                        "tests/test_report.py": REPORT_TEST,
                    },
                },
            ],
            "5": [{"say": "An example in the README.", "write": {"README.md": README}}],
        }
    }
