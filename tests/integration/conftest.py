"""A small corpus and a run on it that nothing disturbed, made once for every test process."""

import shutil

import pytest

from tests.integration.commands import done, train, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A value of --corpus: two files of many blocks."""
    folder = tmp_path_factory.mktemp("corpus")
    return f"{write_corpus(folder / 'a.txt')},{write_corpus(folder / 'b.txt', 200, seed=1)}"


@pytest.fixture(scope="session")
def trained(tmp_path_factory, corpus):
    """A finished workdir with three checkpoints; copy it before changing anything."""
    folder = tmp_path_factory.mktemp("trained")
    done(folder, *train(folder / "run", corpus, "--checkpoint_minutes=0"))
    return folder / "run"


@pytest.fixture
def workdir(tmp_path, trained):
    """A copy of the finished run."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder of a small text, labelled texts and ratings."""
    from tests.integration.replicas import write_data  # with TensorFlow, which takes seconds

    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder
