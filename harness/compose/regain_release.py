"""From what the forge shows of a release to the machine that must have been there. Pure.

The one rule: what was not seen to be gated is gated again. A tag of ours is the only sign that it was.
"""

from __future__ import annotations

from dataclasses import replace

from harness.compose.evidence import Evidence, Version
from harness.compose.regain import Regained, made
from harness.failures import Failure, rule
from harness.machines.gates import prepare_name
from harness.machines.release.states import Release, S


def release(o: Evidence, v: Version) -> Regained | None:
    """The release of a version; None where it is none of ours."""
    machine = f"{o.policy.repo}/release/{v.version}"
    landed = tuple(sorted(n for n, t in o.threads.items() if t.release == v.version))
    if not _ours(o, v, landed):
        return None
    data = _data(o, v, landed)
    merging = next((f for f in o.folders if f.code.startswith(f"release-{v.version}.")), None)
    if v.tag and v.published and not v.tip:
        data = _merged(data, v)
        return Regained(made(o, machine, S.PUBLISHED, data), f"{v.name} is published on the forge")
    if v.tag:
        return Regained(made(o, machine, S.TAGGING, _merged(data, v)), f"{v.name} is there: it is finished")
    if v.pull is not None and v.pull.merged:
        return Regained(made(o, machine, S.MERGING, data), "its pull is merged: what was merged is gated")
    if v.pull is not None and not v.pull.open:
        return Regained(made(o, machine, S.ABANDONED, data, begin=False), "its pull was closed: abandoned")
    if merging is not None:
        number = int(merging.code.rpartition(".")[2])
        attempt = f"{o.policy.repo}/attempt/{merging.code}"
        data = data_with(data, attempt=attempt, resolves=number)
        return Regained(made(o, machine, S.RESOLVING, data), f"its merge agent {merging.code} is at work")
    if v.asked:
        data = data_with(data, **_asked(v))
        item = made(o, machine, S.NEEDS_PERSON, data, begin=False)
        return Regained(item, "it asks a person on its pull")
    item = made(o, machine, S.OPEN, data_with(data, landed=()))
    return Regained(item, f"{v.branch} is open with {len(landed)} landed")


def data_with(data: Release, **more: object) -> Release:
    return replace(data, **more)  # type: ignore[arg-type]


def _ours(o: Evidence, v: Version, landed: tuple[int, ...]) -> bool:
    """Our mark on its pull, our status on its tip, something of ours that landed on it or is made for it."""
    made_for = any((f.brief or {}).get("base") == v.branch for f in o.folders)
    pulls = (t.pull for t in o.threads.values())
    return v.ours or bool(landed) or made_for or any(p and p.open and p.base == v.branch for p in pulls)


def _data(o: Evidence, v: Version, landed: tuple[int, ...]) -> Release:
    base = v.pull.base if v.pull is not None else o.base
    base_tip = o.refs.get(f"refs/heads/{base}", "")
    begun = next(
        (str(f.brief["base_sha"]) for f in o.folders if f.brief and f.brief.get("base") == v.branch), ""
    )
    base_sha = begun or base_tip
    return Release(
        repo=o.policy.repo, version=v.version, branch=v.branch, base=base, base_sha=base_sha, tag=v.name,
        prepare=o.prepared or prepare_name(o.policy, base_sha), pull=v.pull.number if v.pull is not None else 0,
        tip=v.tip or (v.pull.head_sha if v.pull is not None else ""), base_tip=base_tip, landed=landed,
    )  # fmt: skip


def _merged(d: Release, v: Version) -> Release:
    carried = v.pull.head_sha if v.pull is not None else d.tip
    return data_with(d, merge_sha=v.tag, carried=carried, url=v.published)


def _asked(v: Version) -> dict[str, str]:
    """What the call for a person says, as it was."""
    line = v.asked_text.partition("\n")[0].partition(".** ")[2]
    for failure in Failure:
        text = rule(failure).text
        if line.casefold().startswith(text.casefold()):
            return {"failure": str(failure), "detail": line[len(text) :].lstrip(": ").rstrip(".")}
    return {"failure": str(Failure.GONE), "detail": line}
