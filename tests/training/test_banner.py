from __future__ import annotations

import pytest

from app.training import banner


@pytest.mark.parametrize(("hidden", "warned"), [(None, 1), ("0", 1), ("-1", 0), ("", 0)])
def test_a_driver_without_a_gpu_is_named_unless_gpus_are_hidden(
    tmp_path, monkeypatch, hidden, warned
):
    monkeypatch.setattr(banner, "_NVIDIA_DRIVER", str(tmp_path))
    monkeypatch.setattr(banner.tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert len(banner._warnings()) == warned
