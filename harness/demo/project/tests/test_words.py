import unittest

from tally import count


class CountTest(unittest.TestCase):
    def test_counts_each_word(self):
        self.assertEqual(count("a b a"), {"a": 2, "b": 1})

    def test_nothing_in_nothing(self):
        self.assertEqual(count(""), {})


if __name__ == "__main__":
    unittest.main()
