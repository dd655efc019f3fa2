"""How a command refuses bad input: with one line and an exit status."""

import pytest


def refusal(capsys, main, *arguments, status=2) -> str:
    """The one line that a command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == status and message.startswith("error: ")
    return message
