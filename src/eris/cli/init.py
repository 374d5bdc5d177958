"""`eris init`: a commented configuration to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eris.errors import ConfigError

__all__ = ["register"]

_COORDINATOR = "127.0.0.1:7443"
_FEDERATION = """\
# What all peers of the run share: the settings of the training, and who takes part. Every setting: `eris init`.
method = "eris"

[privacy]
{masking}

[federation]
name = "{name}"
coordinator = "{coordinator}"
peers = [{peers}]
# The largest share of an update that one peer may see, including when it stands in for another, and the fewest
# aggregators that an update is divided among.
max_share = {share:.2f}
min_aggregators = {least}
"""
_MASKED = """\
# Aggregators see sums over many members. The price: a member that sends nonsense cannot be named, and median and
# trimmed mean are refused. With "none", each aggregator sees its part of your update.
masking = "pairs\""""
_PLAIN = """\
# Each aggregator sees its part of your update; with four peers or more, "pairs" would show it only sums.
masking = "none\""""

_SUMS_SEEN = (
    "sums over many members (so a member that sends nonsense cannot be named, and median and trimmed mean are refused)"
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def init(
        path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("eris.toml"),
        force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
        peers: Annotated[
            str,
            typer.Option(metavar="A,B,…", help="Write a FEDERATION.toml for these peers instead, masked if possible."),
        ] = "",
        federation: Annotated[
            str, typer.Option(metavar="NAME", help="Its name, as on its certificates.")
        ] = "federation",
        coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where its coordinator is.")] = _COORDINATOR,
    ) -> None:
        """Write a configuration with every setting, its default and what it means; or a federation's file."""
        from eris.config import commented_config
        from eris.methods import commented_options

        if peers:
            path = Path("FEDERATION.toml") if path == Path("eris.toml") else path
            _write_federation(path, peers.split(","), federation, coordinator, force=force)
            return
        if path.exists() and not force:
            raise ConfigError("the file already exists", fix="choose another name, or use --force", path=path)
        path.write_text(commented_config() + commented_options(), encoding="utf-8")
        typer.echo(f"wrote {path}; run it with: eris run {path}")


def _write_federation(path: Path, peers: list[str], name: str, coordinator: str, *, force: bool) -> None:
    """Write a file that loads, with masks on where there are peers enough; nothing is written if it would not."""
    import tempfile

    from eris.methods.masked import MASKED_FROM
    from eris.peer.federation_file import load_federation

    if path.exists() and not force:
        raise ConfigError("the file already exists", fix="choose another name, or use --force", path=path)
    masked, listed = len(peers) >= MASKED_FROM, ", ".join(f'"{peer.strip()}"' for peer in peers)
    masking = _MASKED if masked else _PLAIN
    load = 1 / len(peers)
    text = _FEDERATION.format(
        masking=masking,
        name=name,
        coordinator=coordinator,
        peers=listed,
        share=min(1.0, (2 * load if 2 * load < 1 else load) + 0.01),  # two shards, which are not quite alike
        least=min(2, len(peers)),
    )
    with tempfile.TemporaryDirectory() as folder:
        tried = Path(folder) / "FEDERATION.toml"
        tried.write_text(text, encoding="utf-8")
        load_federation(tried)
    path.write_text(text, encoding="utf-8")
    seen = _SUMS_SEEN if masked else "its part of each update"
    typer.echo(f"wrote {path}: an aggregator sees {seen}; every peer needs exactly this file")
