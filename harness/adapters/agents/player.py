"""The scripted agent: plays what a file says, without any model. For the demo, for tests, for trying a setup.

Stand-alone, standard library only: `python -I player.py PLAY.json`, prompt on standard input. A play is
{"issues": {"12": [round, …], "*": [round, …]}}; HARNESS_ROUND (from 1) picks the round, the last one repeats.
A round: say, write {path: text}, append {path: text}, delete [paths], expect [texts of the prompt], events
[[command, output], …], sleep_s, spam_bytes, raw_output, background (a child that keeps our output open),
question, status, retry_after_s, tokens [in, out], cost_usd, silent (no result line), exit. The one rule: it
writes nothing outside the folder that it was started in, but the question it was told to ask.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BLOCK = b"x" * 65536


class PlayError(Exception):
    """The play cannot be played; one clear line."""


def pick(path: str, issue: str, number: int) -> dict[str, Any]:
    try:
        play = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise PlayError(f"{path or 'HARNESS_PLAY'}: no play to read: {e}") from e
    issues = play.get("issues", {}) if isinstance(play, dict) else {}
    rounds = issues.get(issue) or issues.get("*") or []
    if not rounds:
        raise PlayError(f'{path}: no rounds for issue {issue}; add "issues": {{"{issue}": […]}}')
    return dict(rounds[min(max(number, 1), len(rounds)) - 1])


def inside(name: str) -> Path:
    """A path below the current folder, links followed; PlayError for any other."""
    here = Path.cwd().resolve()
    path = (here / name).resolve()
    if path == here or not path.is_relative_to(here):
        raise PlayError(f"{name}: outside the folder that the play runs in")
    return path


def say(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def touch(part: dict[str, Any]) -> None:
    for name, text in part.get("write", {}).items():
        inside(name).parent.mkdir(parents=True, exist_ok=True)
        inside(name).write_text(text, encoding="utf-8")
    for name, text in part.get("append", {}).items():
        inside(name).parent.mkdir(parents=True, exist_ok=True)
        with inside(name).open("a", encoding="utf-8") as f:
            f.write(text)
    for name in part.get("delete", []):
        inside(name).unlink(missing_ok=True)


def act(part: dict[str, Any], prompt: str) -> None:
    missing = [t for t in part.get("expect", []) if t not in prompt]
    if missing:
        raise PlayError(f"the prompt does not have {missing[0]!r}")
    if part.get("say"):
        say({"type": "message", "text": part["say"]})
    touch(part)
    for command, output in part.get("events", []):
        say({"type": "tool", "command": command, "output": output})
    if part.get("spam_bytes"):
        left = int(part["spam_bytes"])
        while left > 0:
            left -= sys.stdout.buffer.write(BLOCK[:left])
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    if part.get("raw_output"):
        sys.stdout.write(part["raw_output"].rstrip("\n") + "\n")
        sys.stdout.flush()
    if part.get("background"):
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    if part.get("sleep_s"):
        time.sleep(float(part["sleep_s"]))
    if part.get("question") and os.environ.get("HARNESS_QUESTION_FILE"):
        Path(os.environ["HARNESS_QUESTION_FILE"]).write_text(part["question"], encoding="utf-8")


def main(argv: list[str]) -> int:
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    issue, number = os.environ.get("HARNESS_ISSUE", "0"), int(os.environ.get("HARNESS_ROUND", "1"))
    session = os.environ.get("HARNESS_SESSION") or f"play-{issue}"
    say({"type": "init", "session_id": session, "prompt_bytes": len(prompt.encode())})
    try:
        part = pick(argv[1] if len(argv) > 1 else "", issue, number)
        act(part, prompt)
    except PlayError as e:
        print(f"player.py: {e}", file=sys.stderr)
        return 2
    tokens = part.get("tokens", [0, 0])
    status = part.get("status") or ("question" if part.get("question") else "done")
    if not part.get("silent"):
        say(
            {
                "type": "result",
                "status": status,
                "is_error": status not in ("done", "question"),
                "message": part.get("say", ""),
                "session_id": session,
                "tokens_in": tokens[0],
                "tokens_out": tokens[1],
                "cost_usd": part.get("cost_usd"),
                "retry_after_s": part.get("retry_after_s"),
                "question": part.get("question", ""),
            }
        )
    return int(part.get("exit", 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
