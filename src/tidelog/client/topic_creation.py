"""Making topics of a served log.  No state."""

from __future__ import annotations

from tidelog.client.retries import in_doubt
from tidelog.client.session import Session
from tidelog.errors import BadOption, ConnectionLost, LogError, TopicExists
from tidelog.formats.messages import CreateTopic, TopicDescription


async def create_topic(
    session: Session, name: str, streams: int, versions: str, replicas: int
) -> TopicDescription:
    """Create a topic, once, whatever becomes of the connection."""
    if streams < 1:
        raise BadOption(f"a topic has at least one log stream, not {streams}")
    request = CreateTopic(name, streams, versions, replicas)
    deadline = session.loop.time() + session.timeout
    try:
        return await session.ask(request, TopicDescription, repeat=False)
    except ConnectionLost as error:
        lost = error
    # Whether it is there by now is not known.  If it is, and is what was asked for, then this
    # call made it as far as anybody can tell.
    try:
        return await session.ask(
            request,
            TopicDescription,
            seconds=session.left(deadline),
            doubt=lost,
            telling=(TopicExists,),
        )
    except TopicExists:
        try:
            described = await session.describe(name, seconds=session.left(deadline))
        except LogError as error:
            raise in_doubt(lost, error) from error
        # Streams may have been added since; those that take keys are what it was made with.
        if described.key_streams != streams or described.versions != versions:
            raise
        return described


async def create_companion(
    session: Session, name: str, streams: int, like: TopicDescription
) -> TopicDescription:
    """Create a topic that goes with another one, unless it is there; it is as safe as that."""
    replicas = max([len(placement.replicas) for placement in like.placements], default=0)
    try:
        return await create_topic(session, name, streams, "log", replicas)
    except TopicExists:
        return await session.describe(name)
