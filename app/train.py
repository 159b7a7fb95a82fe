"""Trains word vectors: python -m app.train --flagfile=configs/words.cfg --workdir=DIR

Run it again with the same workdir and it goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import logging

from app import config, flags
from app.errors import RunError
from app.evaluation import closing
from app.training import workdir


def main(_: Sequence[str]) -> None:
    """Trains, then scores."""
    settings = flags.parsed()
    flags.start_tensorflow()
    from app import build
    from app.training import banner, loop, vectors, words

    build.use_machine(settings.run)
    place = workdir.Workdir(settings.run.workdir)
    with place.held():
        text = words.text(settings, place, finished=loop.is_finished(place))
        job = build.words_job(settings, text, place)
        loop.prepare(job)
        print(banner.banner(settings, text, job), flush=True)
        if settings.run.plan_only:
            return
        words.record(text, place)
        workdir.write_flags(place.flags, config.settings(settings))
        finished = loop.train(job, settings.run, place)
    again = f"python -m app.train --workdir={place.path}"
    if not finished:
        raise RunError(f"stopped as asked, and saved; go on with: {again}")
    logging.info("%s", closing.closing(vectors.load(place.path), str(place.path)))


if __name__ == "__main__":
    flags.define()
    flags.run(main)
