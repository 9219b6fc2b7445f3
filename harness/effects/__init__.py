"""The verbs: every change to the world, as a frozen value with a natural key.

The one rule: doing an effect twice must equal doing it once, because whoever does it looks for its key first.
`port` names the pool that performs it. `lags` says that "not there" is believed late: the source's reads may
be older than our writes. Texts in effects are final: what is posted is what the journal shows.
"""

from __future__ import annotations

from harness.effects.base import Effect
from harness.effects.forge import (
    CloseIssue,
    Comment,
    EditPull,
    EnsureLabels,
    Label,
    MergePull,
    OpenPull,
    PublishRelease,
    SetStatus,
)
from harness.effects.git import (
    BuildMerge,
    Clone,
    CreateBranch,
    DeleteBranch,
    Discard,
    KeepWork,
    Land,
    Publish,
    Tag,
)
from harness.effects.jobs import (
    Announce,
    EndGate,
    OpenMachine,
    OpenSocket,
    RemoveJob,
    SealBundle,
    ShutSocket,
    StartGate,
    StartHarvest,
    StartPrepare,
    StartWorker,
    StopJob,
    WriteBrief,
)
from harness.effects.worker import (
    Commit,
    Exit,
    LoadContext,
    Request,
    SaveWork,
    StartAgent,
    StartValidation,
    StopRun,
    Sync,
)

EFFECTS: tuple[type[Effect], ...] = (
    OpenMachine, Comment, Label, CloseIssue, OpenPull, EditPull, MergePull, SetStatus, PublishRelease,
    EnsureLabels, CreateBranch, DeleteBranch, BuildMerge, Land, Tag, Publish, Clone, Discard, StartGate,
    EndGate, StartPrepare, WriteBrief, OpenSocket, ShutSocket, StartWorker, StartHarvest, StopJob, RemoveJob,
    KeepWork, SealBundle, Announce, Sync, LoadContext, StartAgent, StartValidation, StopRun, Commit, SaveWork,
    Request, Exit,
)  # fmt: skip  # fmt: skip

__all__ = [
    "EFFECTS",
    "Announce",
    "BuildMerge",
    "Clone",
    "CloseIssue",
    "Comment",
    "Commit",
    "CreateBranch",
    "DeleteBranch",
    "Discard",
    "EditPull",
    "Effect",
    "EndGate",
    "EnsureLabels",
    "Exit",
    "KeepWork",
    "Label",
    "Land",
    "LoadContext",
    "MergePull",
    "OpenMachine",
    "OpenPull",
    "OpenSocket",
    "Publish",
    "PublishRelease",
    "RemoveJob",
    "Request",
    "SaveWork",
    "SealBundle",
    "SetStatus",
    "ShutSocket",
    "StartAgent",
    "StartGate",
    "StartHarvest",
    "StartPrepare",
    "StartValidation",
    "StartWorker",
    "StopJob",
    "StopRun",
    "Sync",
    "Tag",
    "WriteBrief",
]
