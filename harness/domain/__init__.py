"""The nouns: what the outside looks like to us, as frozen values.

The one rule: a source that could not be read, or not recently enough, is `Unknown`, never empty.
All times are POSIX seconds, all sizes bytes. Every class here can be written to a journal and read back.
"""

from __future__ import annotations

from harness.domain.forge import (
    Account,
    Candidate,
    Check,
    Comment,
    Gone,
    Issue,
    Past,
    Published,
    Pull,
    Reply,
    Repository,
    Review,
)
from harness.domain.known import (
    Absent,
    Unknown,
)
from harness.domain.machines import (
    Control,
    Entry,
    Gate,
    Lane,
    Limited,
    Peer,
    Slots,
)
from harness.domain.names import (
    branch_of,
    container_name,
    repo_key,
    slug,
)
from harness.domain.running import (
    AgentResult,
    Ask,
    Beat,
    FileChange,
    Imported,
    Job,
    Limits,
    Merged,
    Mount,
    News,
    Run,
    Status,
    WorkTree,
)

VALUES: tuple[type, ...] = (
    Unknown, Account, Repository, Issue, Gone, Reply, Past, Candidate, Slots, Lane, Entry, Limited, Pull,
    Review, Check, Published, FileChange, Imported, Merged, Mount, Limits, Job, Status, Absent, AgentResult,
    Run, WorkTree, Ask, Beat, News, Control, Peer, Gate,
)  # fmt: skip

__all__ = [
    "VALUES",
    "Absent",
    "Account",
    "AgentResult",
    "Ask",
    "Beat",
    "Candidate",
    "Check",
    "Comment",
    "Control",
    "Entry",
    "FileChange",
    "Gate",
    "Gone",
    "Imported",
    "Issue",
    "Job",
    "Lane",
    "Limited",
    "Limits",
    "Merged",
    "Mount",
    "News",
    "Past",
    "Peer",
    "Published",
    "Pull",
    "Reply",
    "Repository",
    "Review",
    "Run",
    "Slots",
    "Status",
    "Unknown",
    "WorkTree",
    "branch_of",
    "container_name",
    "repo_key",
    "slug",
]
