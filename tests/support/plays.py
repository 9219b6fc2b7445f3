"""The golden nights: what people and agents do in each. What the machines do about it is in
`tests/transcripts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from story import Story

from harness.adapters.memory.forge import MemoryForge
from harness.domain import News
from harness.sim.crew import Play
from harness.sim.night import Night
from harness.sim.outside import WORKS, Fate

RELEASE, SECOND = "release/0.1.0", "release/0.2.0"


def published(release: str = RELEASE) -> Callable[[Night], bool]:
    """The release is out, and the director has come to rest after it."""

    def done(n: Night) -> bool:
        states = n.states()
        rest = all(i.open_intent is None for k, i in n.turns.items.items() if k not in n.turns.out)
        idle = states.get(f"director/{n.epoch}") == "SELF_REVIEW" and "LANDED" not in states.values()
        return rest and idle and states.get(release) == "PUBLISHED"

    return done


def in_state(machine: str, state: str) -> Callable[[Night], bool]:
    return lambda n: n.states().get(machine) == state


def doing(attempt: str, state: str) -> Callable[[Night], bool]:
    """The worker of this attempt is in that state."""

    def there(n: Night) -> bool:
        living = n.crew.living.get(attempt)
        return living is not None and any(i.state == state for i in living.turns.items.values())

    return there


def ada(s: Story, *titles: str) -> None:
    for title in titles:
        n = s.hub.person_opens("ada", title, "Please.", ("harness",))
        s.says(f"ada opens #{n} “{title}”.")


def happy() -> Story:
    """Two issues are done, landed and released, and nobody has to do anything."""
    s = Story()
    ada(s, "Add a parser", "Add a printer")
    s.run(published())
    return s


def rework() -> Story:
    """The tests are red at first. The agent gets the log, and its second try is good."""
    s = Story({1: [{"write": {"parser": "BUG"}}, {"write": {"parser": "fine"}}]})
    ada(s, "Add a parser")
    s.run(published())
    return s


def question() -> Story:
    """The agent asks; a stranger, a bot and a mere quote are no answer; ada's words are, and only once."""
    s = Story({1: [{"question": "Which database?"}, {"write": {"db": "postgres"}}]})
    s.hub.kinds["ci"] = "Bot"
    ada(s, "Add a store")
    s.run(in_state("ticket/1", "WAITING"))
    s.wait(5)
    s.says("A bot, a stranger and ada (who only quotes) comment.")
    s.hub.person_comments("ci", 1, "Build 17 is green.")
    s.hub.person_comments("eve", 1, "Use mine.")
    s.hub.person_comments("ada", 1, "> Which database?")
    s.wait(20)
    s.says("ada answers, with a quote above it, and edits her answer later.")
    said = s.hub.person_comments("ada", 1, "> Which database?\n\nPostgres")
    s.run(in_state("ticket/1", "ATTEMPTING"))
    s.hub.person_edits_comment(said, "MySQL")
    s.run(published())
    return s


def deferral() -> Story:
    """One issue stays red through all its rounds. It is deferred in writing; the release goes without it."""
    s = Story({1: [{"write": {"parser": "BUG"}}]}, rework_rounds=2)
    ada(s, "Add a parser", "Add a printer")
    s.run(published())
    return s


def gate_red() -> Story:
    """Each change is green alone, both together are red: the director's own gate finds it before it lands."""

    def green(tree: Mapping[str, str]) -> bool:
        return "BUG" not in tree.values() and not ("a" in tree and "b" in tree and "glue" not in tree)

    play: Play = {
        1: [{"write": {"a": "1"}}],
        2: [{"write": {"b": "2"}, "takes_s": 33}, {"write": {"glue": "3"}}],
    }
    s = Story(play, green)
    ada(s, "Add a", "Add b")
    s.run(published())
    return s


def conflict() -> Story:
    """Both change the same file. The second conflicts when it is to land, and is made again on the first."""
    play: Play = {1: [{"write": {"same": "one"}}], 2: [{"write": {"same": "two"}, "takes_s": 33}]}
    s = Story(play)
    ada(s, "Change it", "Change it too")
    s.run(published())
    return s


def base_moved() -> Story:
    """While the gate runs somebody pushes to the release branch: the merge is built and gated again."""
    s = Story()
    ada(s, "Add a parser")
    s.run(in_state("ticket/1", "LANDING"))
    s.wait(4)
    s.says("ada pushes to release/0.1.0.")
    s.remote.write("refs/heads/release/0.1.0", {"HOTFIX": "1"}, "a hot fix", s.clock.now())
    s.run(published())
    return s


def killed() -> Story:
    """Somebody kills the worker's container: the same attempt goes on in its second incarnation."""
    s = Story()
    ada(s, "Add a parser")
    s.run(doing("1.1", "CODE"))
    s.wait(10)
    name = s.crew.living["1.1"].name
    s.says(f"Somebody kills {name}.")
    s.runtime.kill(name)
    s.run(published())
    return s


def upgrade() -> Story:
    """A release with a new worker image comes out while a worker is between two tries: it goes on in it."""
    s = Story({1: [{"write": {"a": "BUG"}, "exit": 1, "status": "error"}, {"write": {"a": "1"}}]})
    s.policy = replace(s.policy, retry_initial_s=20.0)
    ada(s, "Add a parser")
    s.run(doing("1.1", "RETRY_WAIT"))
    s.says("The worker image img2 is published.")
    s.policy = replace(s.policy, image="img2")
    s.gateway.publish(News("v0.0.9", "", "img2"))
    s.run(published())
    return s


def person_merges() -> Story:
    """A person merges the release. Main had moved before, so the merged tree is gated before the tag."""
    s = Story(merge="person")
    ada(s, "Add a parser")
    s.run(lambda n: n.states().get(RELEASE) == "MERGING" and bool(n.item(RELEASE).data.waits))
    s.wait(30)
    s.says("ada pushes to main, and then merges the release's pull.")
    s.remote.write("refs/heads/main", {"NEWS": "1"}, "news", s.clock.now())
    pull = s.hub.pulls[s.item(RELEASE).data.pull]
    MemoryForge(s.remote, s.clock, hub=s.hub, login="ada").merge_pull(
        pull.number, pull.head_sha, "merge", "Release 0.1.0", ""
    )
    s.run(published())
    return s


def mended() -> Story:
    """A person merges the release, main goes on, and the merge is red: no tag until a person mends it."""

    def green(tree: Mapping[str, str]) -> bool:
        return not ("NEWS" in tree and "file-1" in tree and "FIX" not in tree)

    s = Story(green=green, merge="person")
    ada(s, "Add a parser")
    s.run(lambda n: n.states().get(RELEASE) == "MERGING" and bool(n.item(RELEASE).data.waits))
    s.says("ada pushes to main, merges the release's pull, and pushes to main again.")
    s.remote.write("refs/heads/main", {"NEWS": "1"}, "news", s.clock.now())
    pull = s.hub.pulls[s.item(RELEASE).data.pull]
    MemoryForge(s.remote, s.clock, hub=s.hub, login="ada").merge_pull(
        pull.number, pull.head_sha, "merge", "Release 0.1.0", ""
    )
    s.wait(3)
    s.remote.write("refs/heads/main", {"OTHER": "1"}, "other", s.clock.now())
    s.run(in_state(RELEASE, "NEEDS_PERSON"))
    s.wait(60)
    s.says("ada mends main.")
    s.remote.write("refs/heads/main", {"FIX": "1"}, "mend it", s.clock.now())
    s.run(published())
    return s


def cutoff() -> Story:
    """Time is up for the release: what has landed goes out, what is under way is carried to the next one."""
    s = Story({2: [{"write": {"b": "2"}, "takes_s": 400}]}, cutoff_s=200.0, interval_s=10.0)
    ada(s, "Add a", "Add b")
    s.run(published(SECOND))
    return s


def cancel() -> Story:
    """A person cancels one issue by command and takes the label off another; the third is done."""
    s = Story({1: [{"takes_s": 300}], 2: [{"takes_s": 300}]})
    ada(s, "Add a", "Add b", "Add c")
    s.run(doing("2.1", "CODE"))
    s.wait(5)
    s.says("ada cancels #1 and takes the label off #2.")
    s.turns.ticker.world.store.control("cancel", {"issue": 1})
    s.hub.person_unlabels(2, "harness")
    s.run(published())
    return s


def cooldown() -> Story:
    """The forge asks to slow down: no new work, no call to it, and the workers go on."""
    s = Story()
    ada(s, "Add a parser")
    s.run(doing("1.1", "CODE"))
    s.says("The forge limits us for 60 s.")
    refusals = iter([Fate("limit", 60.0)])
    s.switch.ask = lambda port, name, write: next(refusals, WORKS) if port == "forge" else WORKS
    s.run(published())
    return s


def pulls_mode() -> Story:
    """No release train: a pull to main waits for a person, who asks for changes and then merges it."""
    play = {1: [{"write": {"a": "1"}}]}
    s = Story(play, mode="pulls")
    ada(s, "Add a parser")
    s.run(in_state("ticket/1", "REVIEWING"))
    s.wait(10)
    number = s.item("ticket/1").data.pull
    s.says(f"ada asks for changes on #{number}.")
    s.hub.person_reviews("ada", number, "CHANGES_REQUESTED", "Call it two.")
    play[1] = [{"write": {"a": "2"}}]
    s.run(in_state("ticket/1", "ATTEMPTING"))
    s.run(in_state("ticket/1", "REVIEWING"))
    s.wait(10)
    pull = s.hub.pulls[number]
    s.says(f"ada merges #{number}.")
    MemoryForge(s.remote, s.clock, hub=s.hub, login="ada").merge_pull(
        number, pull.head_sha, "merge", pull.title, ""
    )
    s.run(in_state("ticket/1", "RELEASED"))
    s.run(in_state("director/1", "SELF_REVIEW"))
    return s


def restart() -> Story:
    """The director dies while a worker works and while another is landing; the next one takes over both."""
    s = Story({2: [{"write": {"b": "2"}, "takes_s": 60}]})
    ada(s, "Add a", "Add b")
    s.run(in_state("ticket/1", "LANDING"))
    s.wait(3)
    s.crash()
    s.run(published())
    return s


def merge_agent() -> Story:
    """The default branch changed the same file: a merge agent resolves it, and the result is gated again."""
    s = Story({1: [{"write": {"same": "ours"}}], 0: [{"write": {"same": "both"}}]})
    ada(s, "Change it")
    s.run(in_state("ticket/1", "LANDED"))
    s.says("ada changes the same file on main.")
    s.remote.write("refs/heads/main", {"same": "theirs"}, "theirs", s.clock.now())
    s.run(published())
    return s


STORIES: Mapping[str, Callable[[], Story]] = {
    f.__name__: f
    for f in (
        happy,
        rework,
        question,
        deferral,
        gate_red,
        conflict,
        base_moved,
        killed,
        upgrade,
        person_merges,
        mended,
        cutoff,
        cancel,
        cooldown,
        pulls_mode,
        restart,
        merge_agent,
    )
}
