#!/usr/bin/env python3
"""A source of models for hotseat: a model is a tar file, without compression.

    launcher pull --model-source tar=examples/model-source/tarred.py tar:///share/tiny.tar

What such a program is asked, and what it says: spec/fetchapi/program.go.
"""

import json
import os
import shutil
import sys
import tarfile
from urllib.parse import unquote, urlsplit


def say(**line):
    print(json.dumps(line), flush=True)


def refuse(reason, detail):
    say(type="error", error={"reason": reason, "detail": detail})
    sys.exit(1)


def revision_of(path):
    """Another archive in its place has another time or size."""
    stat = os.stat(path)
    return f"{stat.st_mtime_ns}-{stat.st_size}"


def resolve(path):
    with tarfile.open(path, "r:") as archive:
        files = [{"path": os.path.normpath(m.name), "size": m.size} for m in archive if m.isfile()]
    say(type="manifest", manifest={"revision": revision_of(path), "files": files})


def read(path, revision, name, offset):
    if revision_of(path) != revision:
        refuse("Changed", f"{path} is another archive by now")
    with tarfile.open(path, "r:") as archive, os.fdopen(3, "wb") as content:
        member = next(m for m in archive if os.path.normpath(m.name) == name)
        file = archive.extractfile(member)
        file.seek(int(offset))
        say(type="opened", offset=int(offset))
        shutil.copyfileobj(file, content, 1 << 20)


question, uri, *rest = sys.argv[1:]
path = unquote(urlsplit(uri).path)
try:
    {"resolve": resolve, "open": read}[question](path, *rest)
except FileNotFoundError:
    refuse("NotFound", f"there is no archive {path}")
except tarfile.TarError as error:
    refuse("Invalid", f"{path} is no tar file without compression: {error}")
