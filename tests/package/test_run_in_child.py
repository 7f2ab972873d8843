"""What becomes of a function in a forked child is told, whatever it does."""

import os

import pytest
from support.child import run_in_child


def test_the_answer_is_given():
    assert run_in_child(max, 3, 5).result() == 5


def test_what_it_raises_is_raised():
    with pytest.raises(ValueError, match="invalid literal"):
        run_in_child(int, "x").result()


def test_a_signal_is_told():
    assert run_in_child(os.abort).signal == "SIGABRT"


def test_an_end_without_an_answer_is_an_error():
    def end():
        os.write(2, b"the reason")
        os._exit(3)

    with pytest.raises(ChildProcessError, match="exit code 3\nthe reason"):
        run_in_child(end).result()
