"""From the configuration to the policy that decisions see.

The one rule: each number is taken from its one key here, so that changing the key changes every decision.
"""

from __future__ import annotations

from harness.config.models import Config
from harness.policy import Policy


def policy(config: Config, *, instance: str = "local", runtime: str = "process", image: str = "") -> Policy:
    """The policy in force. `instance`, `runtime` (what "auto" came to) and `image` (the digest that the name
    came to) are found out at the start, not configured."""
    name, _, rest = config.git.author.partition(" <")
    return Policy(
        repo=config.forge.repo.lower(),
        instance=instance,
        runtime=runtime,
        label_prefix=config.forge.label_prefix,
        branch_prefix=config.forge.branch_prefix,
        allowed_people=config.forge.allowed_people,
        interval_s=config.director.interval_seconds,
        max_workers=config.director.max_workers,
        max_retries=config.director.max_retries,
        rework_rounds=config.director.max_rework_rounds,
        infra_retries=config.director.max_infra_retries,
        wait_retries=config.director.max_wait_retries,
        max_attempts=config.director.max_attempts,
        max_open_reviews=config.director.max_open_reviews,
        quarantine_after=config.director.quarantine_after,
        priority_labels=config.director.priority_labels,
        min_free_bytes=config.director.min_free,
        retry_mode=config.retry.mode,
        retry_initial_s=config.retry.initial_seconds,
        retry_max_s=config.retry.max_seconds,
        retry_jitter_s=config.retry.jitter,
        heartbeat_ttl_s=config.timeouts.worker_heartbeat_ttl_seconds,
        worker_wall_s=config.timeouts.worker_watchdog_seconds,
        idle_s=config.timeouts.idle_seconds,
        claim_stale_s=config.timeouts.issue_claim_stale_seconds,
        validate_s=config.timeouts.validate_seconds,
        prepare_s=config.timeouts.prepare_seconds,
        start_s=config.timeouts.start_seconds,
        harvest_s=config.timeouts.harvest_seconds,
        clean_s=config.timeouts.clean_seconds,
        answer_s=config.timeouts.answer_seconds,
        review_s=config.timeouts.review_seconds,
        grace_s=config.timeouts.stop_grace_seconds,
        checks_appear_s=config.release.checks_appear_seconds,
        mode=config.release.mode,
        when=config.release.when,
        version_scheme=config.release.version_scheme,
        release_branch=config.release.branch,
        tag=config.release.tag,
        batch_size=config.release.batch_size,
        cutoff_s=config.release.cutoff_seconds,
        merge=config.release.merge,
        merge_method=config.release.merge_method,
        required_review=config.release.required_review,
        gates=config.release.gates,
        image=image or config.containers.image,
        commands=config.validation.commands,
        prepare=config.prepare.commands,
        agent=config.agent.kind,
        model=config.agent.model,
        protected=config.policy.protected_paths,
        max_files=config.policy.max_files,
        max_bytes=config.policy.max_bytes,
        self_review=config.self_review.enabled,
        author=(name, rest.rstrip(">")),
    )
