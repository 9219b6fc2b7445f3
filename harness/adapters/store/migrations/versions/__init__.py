"""One module a step. File names begin with the four digits of the schema that the step leads to."""
