"""Options as Spark hands them over, made into values; what is wrong is said with its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from tidelog.errors import BadOption
from tidelog.net.endpoint import LogUrl, parse_url

DEFAULT_TOPIC = "default"
_COUNT_END = 1 << 63
_DIGITS_MAX = 19
_SECRETS = ("token", "password", "secret")


class OptionValues:
    """The texts that a user gave, by name; upper and lower case do not matter."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str], *, use: str) -> None:
        """Refuse names that are not ``known`` in this ``use`` of the format."""
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                _refuse_secret(name)
                near = get_close_matches(name.lower(), names, 1)
                hint = f"did you mean {names[near[0]]!r}? " if near else ""
                raise BadOption(
                    f"{use} has no option {name!r}: {hint}there are {', '.join(sorted(known))}"
                )
            self._values[names[name.lower()]] = str(value)

    def text(self, name: str) -> str | None:
        """The text of an option without the space around it; None if it was not given."""
        value = self._values.get(name)
        return None if value is None else value.strip()

    def count(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return default
        digits = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
        if not (digits and least <= int(value) < _COUNT_END):
            raise self.wrong(name, f"give a whole number from {least} on")
        return int(value)

    def seconds(self, name: str, default_ms: int, *, least_ms: int = 1) -> float:
        """A time that users write in milliseconds."""
        return self.count(name, default_ms, least=least_ms) / 1000

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise self.wrong(name, "give true or false")
        return value.lower() == "true"

    def log(self) -> tuple[LogUrl, str]:
        """The log that ``endpoint`` (or ``url``) leads to, and the topic meant."""
        text, alias = self.text("endpoint"), self.text("url")
        if text is not None and alias is not None:
            raise BadOption("the options 'endpoint' and 'url' are the same: give one of them")
        text = text if text is not None else alias
        if not text:
            raise BadOption(
                "the option 'endpoint' is missing: give the URL of the log, as in "
                "tidelog://host:7447/topic"
            )
        url = parse_url(text)
        topic = self.text("topic")
        if topic is not None and url.topic not in ("", topic):
            raise BadOption(
                f"the option 'topic' says {topic!r}, but 'endpoint' says {url.topic!r}: give one"
            )
        return url, topic or url.topic or DEFAULT_TOPIC

    def wrong(self, name: str, remedy: str) -> BadOption:
        """The error for a value that an option cannot have."""
        return BadOption(f"the option {name!r} is {self._values[name]!r}: {remedy}")


def _refuse_secret(name: str) -> None:
    """Options show in plans, pages and event logs: by the time of this error it is too late."""
    if any(word in name.lower() for word in _SECRETS):
        raise BadOption(
            f"the option {name!r} is refused, since options show in Spark's plans, pages and event "
            "logs: name a file with 'tokenFile' (or 'tls.key'), which every process reads by "
            "itself; what was given should be replaced"
        )
