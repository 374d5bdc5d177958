"""Write NOTICE: whose work eris builds on, and under which licence, from the metadata of what is installed.

$ make notice
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from dependencies import RUNTIME_EXTRAS, closure
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
}
HEAD = """eris
Copyright The eris developers

Licensed under the Apache License, Version 2.0; see LICENSE.

eris contains no code of the packages below. It needs those of the first list; those of the second come with its extras.
Name, version that was tested, and licence, as each package states it itself (made by `make notice`):
"""
READ = {"pyarrow": "Apache-2.0"}  # by a person, for packages that are not installed here or do not say


def main() -> None:
    """Write the file; end with a sentence if a package does not say what its licence is."""
    core = closure("eris-fl")
    lists = (("Needed", core), ("With extras", closure("eris-fl", frozenset(RUNTIME_EXTRAS)) - core))
    text = HEAD + "".join(
        f"\n{title}\n{'-' * len(title)}\n" + "".join(f"{_line(name)}\n" for name in sorted(names))
        for title, names in lists
    )
    (ROOT / "NOTICE").write_text(text, encoding="utf-8")


def _line(name: str) -> str:
    licence = READ.get(name) or _licence(metadata.metadata(name))
    if licence is None:
        sys.exit(f"{name} does not say its licence: look it up and add it to READ")
    return f"{name} {PINS[name]}: {licence}"


def _licence(about: metadata.PackageMetadata) -> str | None:
    """Return the SPDX expression, or else a short licence field, or else what the classifiers say."""
    if expression := about.get("License-Expression"):
        return str(expression)
    field = (about.get("License") or "").strip()
    if field and "\n" not in field and len(field) < 60 and field.upper() != "UNKNOWN":
        return field
    said = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    said = [re.sub(r"^OSI Approved$", "", each) for each in said]
    return ", ".join(filter(None, said)) or None


if __name__ == "__main__":
    main()
