"""The images of the lab: built once from Debian packages, then taken from a cache.

:func:`build` is the only entry point. An image is identified by a digest of its recipe (package list, the files in
``guest/`` or ``emulated/``, the XDP reflector's source), so a change of the recipe builds a new one and leaves the old one alone. Keys are made
per build: who has no access to the cache directory cannot log in, and a guest cannot pass for another image's.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from autotest.errors import ImageError
from autotest.lab.guest.build import build_image, check_host
from autotest.lab.guest.recipe import GuestImage, Recipe

__all__ = ["GuestImage", "ImageError", "Recipe", "build"]

log = logging.getLogger(__name__)

_LOCK_POLL_S = 0.2


def build(cache_dir: Path, recipe: Recipe | None = None, *, lock_timeout_s: float = 600.0) -> GuestImage:
    """The image of ``recipe`` (by default the lab's own), from ``cache_dir`` or, the first time, built (half a minute).

    Building needs root, the Debian packages that the error names when one is missing, and a Debian mirror. Two builders
    wait for each other: a second process gets the first one's image.

    Raises:
        ImageError: not root, a program missing, a step failed, or the lock was not free within ``lock_timeout_s``.
    """
    recipe = recipe or Recipe()
    digest = recipe.digest()
    image = GuestImage(cache_dir.absolute() / digest, digest)
    if not image.missing():
        log.debug("the image of %s, %s, is in the cache", recipe.name, digest)
        return image
    check_host()
    image.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(image.directory.parent / "lock", lock_timeout_s):
        if image.missing():
            _build_locked(image, recipe)
    return image


def _build_locked(image: GuestImage, recipe: Recipe) -> None:
    cache = image.directory.parent
    for stale in cache.glob(".partial-*"):  # under the lock nobody else builds: left by a builder that was killed
        log.warning("removing %s, which an interrupted build left behind", stale)
        shutil.rmtree(stale)
    if image.directory.exists():
        log.warning("the image of %s, %s, lacks %s: building it again", recipe.name, image.digest, ", ".join(image.missing()))
        shutil.rmtree(image.directory)
    partial = cache / f".partial-{image.digest}"
    log.info("building the image of %s, %s, in %s; this happens once", recipe.name, image.digest, cache)
    start = time.monotonic()
    try:
        partial.mkdir(mode=0o700)
        made = GuestImage(partial, image.digest)
        build_image(made, recipe)
        if made.missing():
            raise ImageError(f"the build made no {', '.join(made.missing())}")
        partial.rename(image.directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    log.info("built the image of %s in %.0f s", recipe.name, time.monotonic() - start)


@contextlib.contextmanager
def _locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Holds an exclusive lock on ``path``; the kernel gives it back however the process ends. Raises ImageError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, path, timeout_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    waiting = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise ImageError(f"another process held {path} for {timeout_s:g} s; is it still building?") from None
            if not waiting:
                log.info("waiting for another process that builds an image")
                waiting = True
            time.sleep(_LOCK_POLL_S)
