"""Runs on a GPU end near those on the CPU: CUDA_VISIBLE_DEVICES=0 make test ARGS="-m gpu"

The numbers are equal but for the order of sums and the last bits of exp and log.
"""

import numpy as np
import pytest

from tests.integration.commands import checkpoint, done, read_tables

pytestmark = pytest.mark.gpu

CPU, GPU = "CPU:0", "GPU:0"
FEW = ("--dim=8", "--epochs=1", "--steps_per_call=2", "--compute_dtype=float32")
TEXT = (*FEW, "--batch_tokens=256", "--row_tokens=16", "--min_count=2", "--block_bytes=8192")
WORDS = (*TEXT, "--corpus={data}/text.txt", "--window=2", "--subsample=0.05")
GRAM = (*WORDS, "--group_tokens=32", "--shared_negatives=8")
LANGUAGE = (*TEXT, "--corpus={data}/text.txt", "--task=language_model", "--loss=softmax")
CLASSIFY = (*FEW, "--corpus={data}/labelled.txt", "--task=classify", "--loss=softmax")
RECOMMEND = (*FEW, "--corpus={data}/ratings.csv", "--task=recommend", "--batch_tokens=64")
RUNS = {
    "words": GRAM,
    "cbow": (*GRAM, "--model=cbow"),
    "tree": (*WORDS, "--loss=hierarchical_softmax"),
    "classes": (*WORDS, "--loss=class_softmax", "--classes=4"),
    "host": (*GRAM, "--table=host", "--hot_rows=7", "--stage_steps=4"),
    "sharded": (*GRAM, "--table=sharded"),
    "bfloat16": (*GRAM, "--table_dtype=bfloat16"),
    "adam": (*GRAM, "--optimizer=lazy_adam"),
    "ftrl": (*GRAM, "--optimizer=ftrl"),
    "language": LANGUAGE,
    "classify": CLASSIFY,
    "recommend": (*RECOMMEND, "--loss=in_batch_softmax"),
    "sampled items": (*RECOMMEND, "--loss=sampled_items", "--samples=16"),
}


def numbers(workdir) -> dict[str, np.ndarray]:
    """All rows and slots in the newest checkpoint, as float32."""
    found = read_tables(checkpoint(workdir))
    assert found
    return found


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_near_that_on_the_cpu(tmp_path, data, name):
    ended = {}
    for device in (CPU, GPU):
        folder = tmp_path / device
        folder.mkdir(exist_ok=True)
        flags = [flag.format(data=data) for flag in RUNS[name]]
        command = ("app.train", f"--workdir={folder}/run", *flags, f"--device={device}")
        assert f"device      {device} of" in done(folder, *command).out
        ended[device] = numbers(folder / "run")
    ours, expected = ended[GPU], ended[CPU]
    assert ours.keys() == expected.keys()
    for name, values in expected.items():
        most = np.abs(values).max(initial=0)
        np.testing.assert_allclose(ours[name], values, rtol=0, atol=0.02 * most, err_msg=name)
