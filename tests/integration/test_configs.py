"""The configurations in configs/: each is a plan that can be made, and one is run to its end."""

import shlex

import pytest

from app.settings import checks, flag_values, flagfiles, setting
from app.training.run import train_and_evaluate
from tests.integration.commands import ROOT, fresh, run, write_corpus

# What tasks read that are not about running text.
TEXTS = {"classify.cfg": "__label__a one\n__label__b two\n" * 9}
CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.cfg"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration(tmp_path, name, capsys):
    text = (ROOT / "configs" / name).read_text(encoding="utf-8")
    assert text.startswith("# ")
    flags = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(line.startswith("--") for line in flags)
    assert not [line for line in flags if "flagfile" in line]  # it stands alone
    corpus = write_corpus(tmp_path / "a.txt")
    if name in TEXTS:
        corpus.write_text(TEXTS[name])
    preset = name.removesuffix(".cfg")
    assert flagfiles.preset(preset) == ROOT / "configs" / name
    texts, fields = flagfiles.values(flags), flag_values.fields()
    values = {name: setting.parse(fields[name], text) for name, text in texts.items()}
    planned = values | {"corpus": str(corpus), "plan_only": True}
    assert train_and_evaluate(checks.make_config(planned), "") == ""
    assert "plan  " in capsys.readouterr().out


@pytest.mark.slow  # `make smoke` does it with a configuration of its own
def test_the_whole_loop_on_a_shrunken_copy(tmp_path):
    """As a person runs it: in a fresh process, which says what it should and no more."""
    config = tmp_path / "small.cfg"
    config.write_text(
        (ROOT / "configs/words.cfg").read_text(encoding="utf-8")
        + f"--corpus={write_corpus(tmp_path / 'a.txt')}\n--dim=8\n--epochs=2\n--log_seconds=1e7\n"
    )
    ended = fresh("app.train", f"--flagfile={config}", f"--workdir={tmp_path}/run")
    assert ended.code == 0
    assert ended.out.startswith("device      ")
    said = ended.err.splitlines()
    assert said[0].startswith("step ") and said[1].startswith("benchmark ")
    assert "nearest words:" in said
    for command in said[said.index("next:") + 1 :]:
        program, *arguments = shlex.split(command)
        assert program in ("lexrow", "tensorboard")
        if program == "lexrow" and "--pairs=FILE" not in arguments:
            replaced = {"--output=vectors.txt": f"--output={tmp_path}/vectors.txt"}
            name, *rest = (replaced.get(argument, argument) for argument in arguments)
            assert run(tmp_path, f"app.{name}", *rest).code == 0
