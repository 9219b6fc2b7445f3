"""The forge port over GitHub's REST API, and over anything that speaks it.

The one rule: every answer becomes a plain value of `harness.domain` or an `Err` of the one failure table,
here at the edge. PyGithub is loaded on the first request, so importing this package costs next to nothing.
"""

from harness.adapters.github.bodies import fit_body
from harness.adapters.github.forge import GitHubForge

__all__ = ["GitHubForge", "fit_body"]
