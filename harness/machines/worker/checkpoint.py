"""UPGRADE_CHECKPOINT: go on in the newest image, or go on here. One upgrade per image digest."""

from __future__ import annotations

from harness.core.item import Item
from harness.effects import Exit, SaveWork
from harness.machines.kind import Seen, Watch, known, ok, stay, wait
from harness.machines.worker.states import E, Worker

RESTART_CODE = 75


def watch(item: Item[Worker], seen: Seen) -> Watch:
    news, tree = seen["news"], seen["tree"]
    if not known(news):
        return wait("the director has not said which image is the newest", news)
    if not known(tree):
        return wait("looking at the clone", tree)
    newest = news.image
    if not newest or newest == item.data.image or newest == item.data.checked:
        return ok(E.CURRENT, "the image is current", tag=news.tag or item.data.tag)
    if tree.merging:
        return ok(E.UPGRADE_DEFERRED, "a merge is in progress", tag=news.tag or item.data.tag)
    leave = Exit(RESTART_CODE, newest)
    save = (SaveWork(f"upgrade-{item.seq}"),) if tree.dirty else ()
    tag = news.tag or item.data.tag
    return stay(*save, leave, why=f"restart in {newest}", checked=newest, image=newest, tag=tag)
