"""Pages of the site that come from the code: commands, configuration, Python names, deployment, notebooks.

mkdocs calls the two hooks at the end. Whatever a page says about an option or a setting is read from where eris itself
reads it, so it cannot go stale. Links that leave docs/ for a file of the repository lead to the page made of it.
"""

from __future__ import annotations

import importlib
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python", ".service": "ini"}
_PROJECT = {"README.md": "readme", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}


def commands() -> str:
    """Return a page with every command, its arguments and options, as `--help` knows them."""
    from typer.main import get_command

    from eris import cli

    if not cli.app.registered_commands:
        cli._register()
    root = get_command(cli.app)
    lines = [
        "# Commands",
        "",
        "Made from the commands themselves; `eris COMMAND --help` says the same. `eris --install-completion` teaches "
        "bash, zsh or fish to complete them.",
    ]
    for path, command in _walk(root, ("eris",)):
        lines += ["", f"{'#' * len(path)} {' '.join(path)}", "", *_about(command)]
    return "\n".join(lines) + "\n"


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield (*path, name), each
        yield from _walk(each, (*path, name))


def _about(command: Any) -> Iterator[str]:
    yield _cleaned(command.help or "")
    if getattr(command, "commands", None):
        return
    shown = [param for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
    if shown:
        yield from ("", "| | default | meaning |", "|---|---|---|")
    for param in shown:
        names = "<br>".join(f"`{name}`" for name in _names(param))
        about = _cell(_cleaned(getattr(param, "help", None) or ""))
        yield f"| {names} | {_default(param)} | {about} |"


def _names(param: Any) -> list[str]:
    if param.param_type_name == "argument":
        return [str(param.metavar or param.name).upper()]
    value = "" if param.is_flag else f" {str(param.metavar or param.name).upper()}"
    return [f"{name}{value}" for name in (*param.opts, *param.secondary_opts)]


def _default(param: Any) -> str:
    value = param.default
    if param.required:
        return "required"
    if value in (None, False, (), "") or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def configuration() -> str:
    """Return a page with every setting of a run, from the schema that `eris init` writes its comments from."""
    from eris.config import Config

    plain = Config().model_dump(mode="json")
    tables = [name for name, value in plain.items() if isinstance(value, dict)]
    lines = [
        "# Configuration",
        "",
        "Every setting of a run, from the schema that checks it; `eris init` writes a file with the same words. Give a "
        "file to `eris run`, or single settings with `--set table.key=value`.",
        "",
        "## The run",
        "",
        *_settings(Config, {name: value for name, value in plain.items() if name not in tables}),
    ]
    for table in tables:
        kind: Any = Config.model_fields[table].annotation
        lines += ["", f"## [{table}]", "", (kind.__doc__ or "").strip(), "", *_settings(kind, plain[table])]
    return "\n".join(lines) + "\n"


def _settings(table: Any, values: dict[str, Any]) -> Iterator[str]:
    yield from ("| setting | default | meaning |", "|---|---|---|")
    for name, value in values.items():
        field = table.model_fields[name]
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        about = (
            f"{field.description}: {', '.join(f'`{choice}`' for choice in choices)}" if choices else field.description
        )
        default = "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"
        yield f"| `{name}` | {default} | {_cell(about or '')} |"


def python() -> str:
    """Return a page with every public name, for mkdocstrings to fill in."""
    import eris

    homes: dict[str, list[str]] = {}
    for name in eris.__all__:
        value = getattr(eris, name)
        homes.setdefault(value.__module__, []).append(name)
    lines = ["# Python", "", "What `import eris` offers. Everything else may move from one version to the next."]
    for home in sorted(homes):
        about = (importlib.import_module(home).__doc__ or "").strip().splitlines()[0]
        lines += ["", f"## `{home}`", "", about]
        lines += [f"\n::: {home}.{name}" for name in homes[home]]
    return "\n".join(lines) + "\n"


def deployment() -> str:
    """Return a page with every file of deploy/, as it is."""
    lines = ["# Files to deploy", "", "What `deploy/` in the repository holds; [how to use it](../operate.md)."]
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file() and path.suffix != ".json":
            name = path.relative_to(ROOT).as_posix()
            language = _LANGUAGES.get(path.suffix, "text")
            lines += ["", f"## {name}", "", f"```{language}", path.read_text(encoding="utf-8").rstrip(), "```"]
    return "\n".join(lines) + "\n"


def notebook(path: Path) -> str:
    """Return a notebook as a page: its words, its code and what came out when it was last run."""
    pieces = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
        elif cell["cell_type"] == "code":
            pieces.append(f"```python\n{source}\n```")
            pieces += [text for output in cell["outputs"] if (text := _shown(output))]
    return "\n\n".join(pieces) + f"\n\nThis page is the notebook `docs/notebooks/{path.name}`; tests run it.\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="what the cell draws" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "".join(output.get("text", data.get("text/plain", ""))))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def pages() -> dict[str, str]:
    """Return every page that is made, by its path in the site."""
    made = {
        "reference/commands.md": commands(),
        "reference/configuration.md": configuration(),
        "reference/python.md": python(),
        "reference/deploy.md": deployment(),
    }
    for name, page in _PROJECT.items():
        made[f"project/{page}.md"] = (ROOT / name).read_text(encoding="utf-8")
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{path.stem}.md"] = notebook(path)
    return made


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and leave the notebooks themselves out."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
    for uri, text in pages().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to the pages made of them."""
    del config, files
    folder = posixpath.dirname(page.file.src_uri)
    origin = "" if page.file.src_uri.startswith("project/") else f"docs/{folder}" if folder else "docs"

    return re.sub(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)", lambda link: _turn(link, origin, folder), markdown)


def _turn(match: re.Match[str], origin: str, folder: str) -> str:
    text, link = match[1], match[2]
    target, sign, anchor = link.partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return match[0]
    inside = posixpath.normpath(posixpath.join(origin, target))
    goal = _page_of(inside)
    if goal is None:  # a file that is no page: its name is enough to find it in the repository
        return f"{text} (`{inside}`)" if text != Path(inside).name else f"`{inside}`"
    return f"[{text}]({posixpath.relpath(goal, folder or '.')}{sign}{anchor})"


def _page_of(inside: str) -> str | None:
    """Return the page in which a file of the repository is shown."""
    if inside in _PROJECT:
        return f"project/{_PROJECT[inside]}.md"
    if inside.startswith("docs/notebooks/"):
        return inside.removeprefix("docs/").replace(".ipynb", ".md")
    if inside.startswith("docs/"):
        return inside.removeprefix("docs/")
    return "reference/deploy.md" if inside.startswith("deploy/") else None


def _cleaned(text: str) -> str:
    return re.sub(r"\s*\f.*", "", text, flags=re.DOTALL).strip()


def _cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|").replace("<", "&lt;")
