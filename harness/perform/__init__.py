"""The only place that writes to the world: one flat match over effects.

The one rule: every effect looks for its natural key first, and nothing waits inside one. What takes longer
than a few seconds is started here and observed elsewhere.
"""

from __future__ import annotations

import errno

from harness import effects as fx
from harness.failures import Failure
from harness.perform import forge, git, jobs, local, work
from harness.perform.outcome import Outcome, Sent
from harness.perform.places import NOT_NOW, NoRoom
from harness.ports import World

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
BROKEN = NOT_NOW | {errno.EROFS}
PASSING = frozenset({Failure.DISK_FULL, Failure.INFRA_ENGINE})
ROOM_S = 15.0


def perform(effect: fx.Effect, sent: Sent, world: World) -> Outcome:
    """A disk that is full or fails is nobody's bug: every effect looks for its key first, so it is tried
    again. Below the floor of free space nothing is started; that is written once, and waits for as long as it
    takes at nobody's cost."""
    try:
        return _perform(effect, sent, world)
    except NoRoom as e:
        after = world.clock.now() + min(world.policy().interval_s, ROOM_S)
        status = "later" if sent.tries else "deferred"
        return Outcome(status, None, Failure.DISK_FULL, str(e), after)
    except OSError as e:
        if e.errno not in FULL | BROKEN:
            raise
        failure = Failure.DISK_FULL if e.errno in FULL else Failure.INFRA_ENGINE
        return Outcome("deferred", None, failure, f"{type(effect).__name__}: {e.filename}: {e.strerror}")
    except Exception as e:
        said = getattr(e, "failure", "")
        if said not in PASSING:
            raise
        return Outcome("deferred", None, said, f"{type(effect).__name__}: {e}")


def _perform(effect: fx.Effect, sent: Sent, world: World) -> Outcome:
    match effect:
        case fx.Comment():
            return forge.comment(effect, sent, world)
        case fx.Label():
            return forge.label(effect, world)
        case fx.CloseIssue():
            return forge.close_issue(effect, world)
        case fx.OpenPull():
            return forge.open_pull(effect, sent, world)
        case fx.EditPull():
            return forge.edit_pull(effect, world)
        case fx.MergePull():
            return forge.merge_pull(effect, world)
        case fx.SetStatus():
            return forge.set_status(effect, sent, world)
        case fx.PublishRelease():
            return forge.publish_release(effect, sent, world)
        case fx.EnsureLabels():
            return forge.ensure_labels(effect, world)
        case fx.CreateBranch():
            return git.create_branch(effect, world)
        case fx.DeleteBranch():
            return git.delete_branch(effect, world)
        case fx.BuildMerge():
            return git.build_merge(effect, world)
        case fx.Land():
            return git.land(effect, world)
        case fx.Tag():
            return git.tag(effect, world)
        case fx.Publish():
            return git.publish(effect, world)
        case fx.Clone():
            return git.clone(effect, world)
        case fx.Discard():
            return git.discard(effect, world)
        case fx.KeepWork():
            return git.keep_work(effect, world)
        case fx.StartGate():
            return jobs.start_gate(effect, world)
        case fx.EndGate():
            return jobs.end_gate(effect, sent, world)
        case fx.StartPrepare():
            return jobs.start_prepare(effect, world)
        case fx.StartWorker():
            return jobs.start_worker(effect, world)
        case fx.StartHarvest():
            return jobs.start_harvest(effect, world)
        case fx.StopJob():
            return jobs.stop(effect.name, effect.grace_s, world)
        case fx.StopRun():
            return jobs.stop(effect.run, effect.grace_s, world)
        case fx.RemoveJob():
            return jobs.remove(effect, world)
        case fx.WriteBrief():
            return local.write_brief(effect, world)
        case fx.OpenSocket():
            return local.open_socket(effect, world)
        case fx.ShutSocket():
            return local.shut_socket(effect, world)
        case fx.SealBundle():
            return local.seal_bundle(effect, sent, world)
        case fx.Announce():
            return local.announce(effect, world)
        case fx.Sync():
            return work.sync(effect, world)
        case fx.LoadContext():
            return work.load_context(effect, world)
        case fx.StartAgent():
            return work.start_agent(effect, world)
        case fx.StartValidation():
            return work.start_validation(effect, world)
        case fx.Commit():
            return work.commit(effect, world)
        case fx.SaveWork():
            return work.save_work(effect, world)
        case fx.Request():
            return work.request(effect, world)
        case fx.Exit():
            return work.leave(effect, world)
    raise TypeError(f"nobody performs {type(effect).__name__}")
