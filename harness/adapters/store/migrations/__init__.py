"""The steps between the database's schemas, run in code by `harness.adapters.store.schema`.

The one rule: a step that was released is never edited; what must change is a new step.
"""
