"""``tidelog config``: what a node is told, and by what."""

from __future__ import annotations

import click

config_option = click.option(
    "-c",
    "--config",
    metavar="FILE",
    envvar="TIDELOG_CONFIG",
    show_envvar=True,
    help="The configuration, in TOML; variables TIDELOG_SECTION__KEY override it.",
)


@click.group("config")
def command() -> None:
    """The configuration of a node."""


@command.command("show")
@config_option
@click.option("--origin", is_flag=True, help="Tell where each value comes from.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["toml", "json"]),
    default="toml",
    show_default=True,
    help="As a file to start with, or for programs.",
)
def show(config: str | None, origin: bool, output: str) -> None:
    """Show every key, with its value as a node would take it.

    Values are checked one by one; `tidelog node start` also checks whether they fit together.
    """
    from tidelog.runtime.config_sources import KEYS, SECTIONS, read_config, value_of, written

    loaded = read_config(config)
    if output == "json":
        from tidelog.cli.output import print_json

        print_json(
            {
                path: {
                    "value": _plain(value_of(loaded.config, key)),
                    "origin": loaded.origins[path],
                }
                for path, key in KEYS.items()
            }
        )
        return
    for section in SECTIONS:
        click.echo(f"[{section}]")
        for path, key in KEYS.items():
            if key.section == section:
                line = f"{key.name} = {written(value_of(loaded.config, key))}"
                click.echo(f"{line}  # {loaded.origins[path]}" if origin else line)
        click.echo()


def _plain(value: object) -> object:
    import msgspec

    return msgspec.to_builtins(value)
