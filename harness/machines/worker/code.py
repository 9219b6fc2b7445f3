"""CODE: one run of the agent. Its exit code is a hint; what counts is that the tree changed."""

from __future__ import annotations

from harness.core.item import Item
from harness.core.result import Err, Pass
from harness.domain import AgentResult, Run
from harness.effects import Effect, Request, StartAgent
from harness.failures import Failure
from harness.machines.attempt.outcome import OUTPUT_LIMIT
from harness.machines.kind import Seen, Watch, known, ok, stay, wait
from harness.machines.worker.states import E, Worker, run_id

BY_STATUS = {
    "rate_limited": Failure.AGENT_RATE_LIMITED,
    "quota": Failure.BUDGET_EXHAUSTED,
    "overloaded": Failure.AGENT_RATE_LIMITED,
    "auth": Failure.AUTH_FAILED,
    "connection": Failure.INFRA_GATEWAY,
    "interrupted": Failure.INFRA_KILLED,
    "timeout": Failure.TIMEOUT,
    "looped": Failure.AGENT_LOOPED,
}


def begin(item: Item[Worker], seen: Seen) -> tuple[Effect, ...]:
    d = item.data
    return (StartAgent(run_id(item), d.agent, d.round + 1, d.feedback, d.session, d.conflicts),)


def watch(item: Item[Worker], seen: Seen) -> Watch:
    if item.value_of("Request") is not None:
        return Err(Failure.QUESTION, item.data.question)
    run: Run = seen[f"run/{run_id(item)}"]
    if not known(run):
        return wait("looking at the agent", run)
    if run.running:
        return _still(run, seen)
    if run.limit:
        return over(run, "the agent")
    if run.lost or run.result is None:
        return Err(Failure.INFRA_KILLED, "the agent left no exit status")
    return _ended(item, seen, run, run.result)


def _still(run: Run, seen: Seen) -> Watch:
    """No output, no CPU time and no file change for `idle_s` is a stall; one of them alone is not."""
    quiet_s = seen.now - max(run.progress_at, run.started_at)
    if quiet_s > seen.policy.idle_s:
        last = run.log_tail.strip().splitlines()[-1:] or ["nothing at all"]
        return Err(Failure.AGENT_STALLED, f"no progress for {int(quiet_s)} s; its last line: {last[0][:200]}")
    return Pass("the agent is working")


def over(run: Run, who: str) -> Err:
    """What was ended for a limit of its own: the limit is the reason, whatever its last words were."""
    if run.limit == "wall":
        return Err(Failure.TIMEOUT, f"{who} ran for longer than it may")
    text = f"{OUTPUT_LIMIT}: {who} wrote {run.output_bytes} bytes of output, more than it may"
    return Err(Failure.AGENT_FAILED, text)


def _ended(item: Item[Worker], seen: Seen, run: Run, result: AgentResult) -> Watch:
    spent = {
        "session": result.session_id or item.data.session,
        "tokens": item.data.tokens + result.tokens_in + result.tokens_out,
        "cost_usd": round(item.data.cost_usd + (result.cost_usd or 0.0), 6),
    }
    if result.question:
        ask = Request(f"ask-{item.entry}", "ask", {"question": result.question})
        return stay(ask, why="the agent asks a person", question=result.question, **spent)
    if result.status != "done":
        failure = BY_STATUS.get(result.status, Failure.AGENT_FAILED)
        if run.gaps > (item.value_of("StartAgent") or {}).get("gaps", 0):
            # The director was away during the run: whose failure it was cannot be told, so not the agent's.
            failure = Failure.INFRA_GATEWAY
        until = None if result.retry_after_s is None else seen.now + result.retry_after_s
        return Err(failure, f"{result.status}: {result.message[:500]}", not_before=until)
    tree = seen["tree"]
    if not known(tree) or tree.seen_at < run.seen_at:
        return wait("looking at what the agent changed", tree)
    if tree.broken:
        text = f"the agent damaged its clone's own .git, and nothing can be taken from it ({tree.broken})"
        return Err(Failure.POLICY_VIOLATION, text)
    if not tree.dirty and not tree.ahead:
        return Err(Failure.AGENT_NO_CHANGES, result.message[:500])
    why = f"exited {run.exit}, {tree.dirty} files changed, {result.tokens_in + result.tokens_out} tokens"
    return ok(E.CODED, why, summary=result.message[:4000], **spent)
