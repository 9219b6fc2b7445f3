"""Policy: the part of the configuration that decisions read, as one frozen value of plain fields.

The one rule: a number that is a policy stands in the configuration; decisions see it only here, and a journal
keeps the policy they saw by its hash. Seconds end in `_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# How long an effect may stay open, and with it what waits for the delivery of finished work.
DELIVERY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Policy:
    repo: str = "acme/widget"
    instance: str = "local"
    runtime: str = "process"
    label_prefix: str = "harness"
    branch_prefix: str = "agent"
    allowed_people: tuple[str, ...] = ()
    interval_s: float = 60.0
    max_workers: int = 3
    max_retries: int = 3
    rework_rounds: int = 3
    infra_retries: int = 5
    wait_retries: int = 20
    max_attempts: int = 10
    max_open_reviews: int = 10
    effect_tries: int = 50
    quarantine_after: int = 5
    priority_labels: tuple[str, ...] = (
        "priority:critical",
        "priority:high",
        "priority:medium",
        "priority:low",
    )
    # retry
    retry_mode: str = "exponential"
    retry_initial_s: float = 1.0
    retry_max_s: float = 30.0
    retry_jitter_s: float = 0.0
    # timeouts
    heartbeat_ttl_s: float = 90.0
    worker_wall_s: float = 3600.0
    idle_s: float = 1200.0
    claim_stale_s: float = 21600.0
    validate_s: float = 1800.0
    prepare_s: float = 1800.0
    start_s: float = 300.0
    harvest_s: float = 300.0
    clean_s: float = 600.0
    answer_s: float = 604800.0
    review_s: float = 1209600.0
    checks_appear_s: float = 600.0
    grace_s: float = 10.0
    lag_s: float = 5.0
    lag_reads: int = 3
    # release
    mode: str = "train"
    when: str = "settled"
    version_scheme: str = "minor"
    release_branch: str = "release/{version}"
    tag: str = "v{version}"
    batch_size: int = 20
    cutoff_s: float = 43200.0
    merge: str = "person"
    merge_method: str = "merge"
    required_review: str = "none"
    gates: str = "command"
    # the work
    image: str = ""
    commands: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    agent: str = "scripted"
    model: str = ""
    protected: tuple[str, ...] = ()
    max_files: int = 100
    max_bytes: int = 5 << 20
    self_review: bool = False
    min_free_bytes: int = 5 << 30
    author: tuple[str, ...] = ("harness", "harness@localhost")
    counters: dict[str, int] = field(default_factory=dict)

    def label(self, part: str = "") -> str:
        """`harness`, or `harness:working` for the part "working"."""
        return f"{self.label_prefix}:{part}" if part else self.label_prefix

    def bound(self, counter: str) -> int:
        """How many failures of a counter are allowed before the rule's end is taken."""
        bounds = {
            "agent": self.max_retries,
            "rework": self.rework_rounds,
            "infra": self.infra_retries,
            "wait": self.wait_retries,
        }
        return bounds.get(counter, self.effect_tries)


VALUES: tuple[type, ...] = (Policy,)
