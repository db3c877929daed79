import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    exec(example, scope)
    assert {"advantages", "targets"} <= scope.keys()


def test_there_are_exactly_two_commands() -> None:
    (shell,) = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert [line.split("#")[0].strip() for line in shell.splitlines()] == ["make demo", "make test"]
