"""The director's git: runner, mirror, quarantine, clones, and `GitRepo`, which is the Repo port over them.

The one rule: git is never run in a folder that a worker could have written.
"""

from harness.adapters.git.limits import GitLimits
from harness.adapters.git.repo import GitRepo

__all__ = ["GitLimits", "GitRepo"]
