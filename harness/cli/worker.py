"""`harness worker`: runs in the container; all it needs is in its environment and mounts."""

from __future__ import annotations

import os

import click


@click.command(help="Run a worker. Started by the director, in the worker's container.")
@click.option("--harvest", is_flag=True, help="Only save what is in the clone.")
def command(harvest: bool) -> int:
    from harness.compose import worker

    return worker.harvest(os.environ) if harvest else worker.work(os.environ)
