"""What is said on the bus, version by version: one JSON text frame a message, one binary frame a journal
line.

The one rule: unknown fields are ignored, unknown versions are refused by name: PROTOCOL and the one
before it are spoken, so that a director and its workers may be one release apart.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from harness.core.journal import LINE_LIMIT_BYTES
from harness.domain import News

PROTOCOL = 1
TEXT_LIMIT_BYTES = 128 << 10
FRAME_LIMIT_BYTES = LINE_LIMIT_BYTES + 1024
TOKEN_HEADER = "x-harness-token"
INCARNATION_HEADER = "x-harness-incarnation"
REASON_HEADER = "x-harness-reason"
# Close codes of our own (4000 and above are for applications).
CLOSE_INCOMPATIBLE = 4409
CLOSE_REPLACED = 4410
CLOSE_MALFORMED = 4400
CLOSE_LATER = 1013


def speaks(version: int, own: int = PROTOCOL) -> bool:
    """Whether an end of protocol `own` understands `version`."""
    return own - 1 <= version <= own


class Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# ---------------------------------------------------------------- up


class Hello(Message):
    """The first frame. `code` is the worker's version, for people."""

    type: Literal["hello"] = "hello"
    v: int
    code: str = Field(default="", max_length=64)


class Detail(Message):
    """What a beat tells beside the state."""

    output_bytes: int = Field(default=0, ge=0)
    cpu_s: float = Field(default=0.0, ge=0)
    final: str = Field(default="", max_length=64)
    reason: str = Field(default="", max_length=2000)
    failure: str = Field(default="", max_length=64)
    counters: dict[str, int] = Field(default={}, max_length=16)


class Pulse(Message):
    """A heartbeat. `age_s` is how long ago the worker said it, which is more than nothing after a
    reconnect."""

    type: Literal["beat"] = "beat"
    n: int = Field(ge=0)
    state: str = Field(max_length=64)
    age_s: float = Field(default=0.0, ge=0)
    detail: Detail = Detail()


class Question(Message):
    type: Literal["ask"] = "ask"
    key: str = Field(min_length=1, max_length=200)
    kind: str = Field(pattern=r"^[a-z][a-z_]{0,31}$")
    args: dict[str, Any] = Field(default_factory=dict)


Up = Annotated[Hello | Pulse | Question, Field(discriminator="type")]
UP: TypeAdapter[Hello | Pulse | Question] = TypeAdapter(Up)


# ---------------------------------------------------------------- down


class Bulletin(Message):
    """domain.News on the wire."""

    tag: str = ""
    main_sha: str = ""
    image: str = ""
    paused: bool = False
    stop: bool = False

    @classmethod
    def of(cls, news: News) -> Bulletin:
        return cls(tag=news.tag, main_sha=news.main_sha, image=news.image, paused=news.paused, stop=news.stop)

    def value(self) -> News:
        return News(self.tag, self.main_sha, self.image, self.paused, self.stop)


class Welcome(Message):
    """`v` is what is spoken from here on; `seq` the last record witnessed."""

    type: Literal["welcome"] = "welcome"
    v: int
    seq: int
    news: Bulletin


class Incompatible(Message):
    type: Literal["incompatible"] = "incompatible"
    v: int
    why: str


class Notice(Message):
    """The news, level-triggered: the reply to beat `n`, or 0 when something changed."""

    type: Literal["news"] = "news"
    n: int = 0
    news: Bulletin


class Ack(Message):
    """Every record up to `seq` is on the director's disk."""

    type: Literal["ack"] = "ack"
    seq: int


class SyncRequired(Message):
    """Send the records again, from `seq` on."""

    type: Literal["sync_required"] = "sync_required"
    seq: int


class Refused(Message):
    """Record `seq` cannot be right, and no later one will be taken."""

    type: Literal["refused"] = "refused"
    seq: int
    why: str


class Reply(Message):
    type: Literal["reply"] = "reply"
    key: str
    reply: dict[str, Any]


Down = Annotated[
    Welcome | Incompatible | Notice | Ack | SyncRequired | Refused | Reply, Field(discriminator="type")
]
DOWN: TypeAdapter[Welcome | Incompatible | Notice | Ack | SyncRequired | Refused | Reply] = TypeAdapter(Down)
