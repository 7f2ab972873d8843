"""``dlbridge matrix``: what its children find and survive, what it is shown as, and its page in the documents."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.hostile_rows import Copier
from support.tools import load_tool

import dlbridge
from dlbridge.__main__ import main
from dlbridge.libraries.library import libraries
from dlbridge.matrix import children, measure, page, report
from dlbridge.matrix.children import Call, Ended
from dlbridge.matrix.pair import OUTCOMES, Cell, Matrix, Wrong, convert
from dlbridge.matrix.rows import ROWS, Row, rows_of

CHECKOUT = Path(__file__).parents[2]
VOID = {"meta", "br", "link", "img", "hr", "input"}
HOSTILE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)     # what was started in the background ignores the key
sys.path.insert(0, {folder!r})
import dlbridge.matrix.measure
dlbridge.matrix.measure.TABLE = "support.hostile_rows"
from dlbridge.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def hostile_command(*words):
    return [sys.executable, "-c", HOSTILE.format(folder=str(Path(__file__).parents[1])), "matrix", *words]


def matrix_of(cells, missing=None):
    """A Matrix of these cells, by pair."""
    return Matrix(cells, {"numpy": "2.4"}, missing or {},
                  {"system": "Linux", "cpu": "a CPU", "cpus": 2, "python": "CPython 3"})


def square(names, cell):
    return matrix_of({(source, target): cell for source in names for target in names})


# ---- the children ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def hostile():
    """Every hostile row but the one that does not end, into a memoryview."""
    table, measure.TABLE = measure.TABLE, "support.hostile_rows"
    try:
        return measure.measure([name for name in rows_of("support.hostile_rows") if name not in ("sleeping", "numpy")])
    finally:
        measure.TABLE = table


@pytest.mark.parametrize(("source", "outcome", "reason"), [
    ("memoryview", "returned", ""),
    ("talking", "shared", ""),
    ("copying", "copied", "each export of copying is a copy"),
    ("refused", "impossible", "offers no array protocol"),
    ("broken", "not here", "broken makes no array here: AttributeError: .*no_such_function"),
    ("crashing", "failed", "SIGSEGV: a library's last words"),
    ("crashing at exit", "failed", "SIGABRT at exit, after the conversion"),
    ("exiting", "failed", "exit code 3"),
    ("nameless", "failed", r"signal \d+$"),
    ("leaving", "shared", ""),
    ("lying", "failed", "values arrived changed"),
    ("misshapen", "failed", r"float32 \(144,\) arrived as float32 \(9, 16\)"),
    ("raising", "failed", "RuntimeError: there is no memory in this machine"),
])
def test_what_becomes_of_a_pair(hostile, source, outcome, reason):
    cell = hostile.cells[source, "memoryview"]
    assert cell.outcome == outcome
    assert re.search(reason, cell.reason), cell.reason
    assert (cell.nanoseconds is not None) == (outcome in ("returned", "shared", "copied"))


@pytest.mark.parametrize(("kind", "outcome"), [(Copier, "shared"), (np.copy, "failed")])
def test_a_target_whose_exports_are_copies_does_not_show_where_it_is(kind, outcome):
    name = f"matrix_{kind.__name__}"
    dlbridge.register_target(name, lambda tensor: kind(np.asarray(tensor)))
    target = Row(name, "builtins", (), None, lambda python, made: getattr(made, "array", made))
    array = np.arange(144, dtype="float32").reshape(9, 16)
    try:
        found = convert(rows_of("support.hostile_rows")["numpy"], target, lambda: array).outcome
    except Wrong:
        found = "failed"
    assert found == outcome


def test_one_crash_is_one_cell(hostile):
    assert hostile.targets == ["memoryview"]
    assert len(hostile.cells) == len(rows_of("support.hostile_rows")) - 3
    assert hostile.missing == {"absent": "no-such-package"}


def test_a_library_that_never_answers_is_a_cell(monkeypatch):
    monkeypatch.setattr(measure, "TABLE", "support.hostile_rows")
    start = time.monotonic()
    cell = measure.measure(["sleeping", "memoryview"], seconds=2).cells["sleeping", "memoryview"]
    assert (cell.outcome, cell.reason) == ("failed", "no answer after 2 s")
    assert time.monotonic() - start < 60


def ask(*calls, seconds=20):
    return list(children.ask(dict(enumerate(calls)), lambda done, key: None, seconds).values())


def test_what_a_child_starts_goes_with_it(tmp_path):
    note = tmp_path / "process"
    code = f"import subprocess; open({str(note)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    assert ask(Call("builtins", "exec", (code,))) == [Ended(None)]
    assert is_gone(note.read_text())


def test_what_is_printed_while_python_starts_is_no_answer(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask(Call("builtins", "len", ("four",))) == [Ended(4)]


def test_a_path_that_only_this_process_understands(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    assert ask(Call("builtins", "len", ("four",))) == [Ended(4)]


def test_a_process_that_cannot_be_started_is_a_cell(monkeypatch):
    def fail(*arguments, **keywords):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(children, "Popen", fail)
    assert ask(Call("builtins", "len", ("four",)))[0].trouble == "OSError: [Errno 24] Too many open files"


def test_a_child_ends_also_if_nobody_is_left_to_end_it():
    done = subprocess.run(Call("signal", "pause", ()).command(0), capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGALRM


def test_an_error_of_whoever_listens_leaves_no_child():
    def tick(done, key):
        raise KeyError(key)

    calls = {"quick": Call("builtins", "len", ("",)), "slow": Call("signal", "pause", ())}
    start, others = time.monotonic(), children_of(os.getpid())
    with pytest.raises(KeyError, match="quick"):
        children.ask(calls, tick, 600)
    assert time.monotonic() - start < 60
    assert set(children_of(os.getpid())) <= set(others)


@pytest.mark.parametrize("seconds", [0, 0.00005, 0.0002, 0.001, 0.002, 0.01, 0.02])
def test_the_interrupt_key_is_pressed_again(seconds):
    with subprocess.Popen(hostile_command("sleeping", "memoryview"), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not any(map(is_at_work, started := children_of(process.pid))):
            time.sleep(0.05)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(seconds)
        _, error = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), error
    assert all(map(is_gone, started))


def is_gone(process):
    """Soon, since a signal takes its time."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_failed_pair_is_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(measure, "TABLE", "support.hostile_rows")
    assert main(["matrix", "memoryview"]) == 0
    assert main(["matrix", "memoryview", "crashing"]) == 1
    assert "SIGSEGV: a library's last words" in capsys.readouterr().out
    assert main(["matrix", "absent", "memoryview"]) == 0
    assert "not installed: absent (pip install no-such-package)" in capsys.readouterr().out


def test_the_interrupt_key_ends_it_and_its_children():
    with subprocess.Popen(hostile_command("sleeping", "memoryview"), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not any(map(is_at_work, started := children_of(process.pid))):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")
    assert not [child for child in started if Path(f"/proc/{child}").exists()]


def children_of(process):
    """Whichever of its threads started them."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):     # a thread that ended
            found += path.read_text().split()
    return found


def is_at_work(process):
    """Whether a child has become what it is to run, and lives."""
    try:
        return "look" in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False


# ---- a real run ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """JSON and page of three libraries, by the command."""
    folder = tmp_path_factory.mktemp("matrix")
    command = [sys.executable, "-W", "error", "-m", "dlbridge", "matrix", "numpy", "torch", "memoryview",
               "--json", "--html", "page.html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, (folder / "page.html").read_text()


@pytest.mark.needs("torch")
def test_json_has_every_pair(real):
    run = json.loads(real[0])
    assert run["dlbridge"] == dlbridge.__version__
    assert set(run["libraries"]) == {"numpy", "torch"}
    assert run["missing"] == {}
    assert run["array"] == {"dtype": "float32", "shape": [9, 16], "alignment": 64}
    cells = {(pair["source"], pair["target"]): pair for pair in run["pairs"]}
    assert set(cells) == {(source, target) for source in ("numpy", "torch", "memoryview")
                          for target in ("numpy", "torch", "memoryview")}
    for pair in cells.values():
        outcome = "returned" if pair["source"] == pair["target"] else "shared"
        assert (pair["outcome"], pair["reason"], pair["hint"]) == (outcome, "", "")
        assert 0 < pair["nanoseconds"] < 1e7


@pytest.mark.needs("torch")
def test_json_is_read_back(real):
    matrix = report.from_json(real[0])
    assert report.as_json(matrix) == real[0].strip()


class Reader(HTMLParser):
    """Every tag is closed; what is in the table."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_page(text, cells):
    read = Reader(text)
    assert read.tags.count("html") == 1
    assert [value for name, value in read.attributes if name == "role"] == ["tooltip"] * cells
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert not re.search(r"https?:|url\(|@import|src=|\$\w", text)
    assert not re.search(r"\.matrix [^,{]*\.matrix", text)      # which nothing is
    ids = {value for name, value in read.attributes if name == "id"}
    assert {value for name, value in read.attributes if name == "href"} == {f"#{name}" for name in ids}
    return read


@pytest.mark.needs("torch")
def test_the_page_is_whole_and_needs_nothing_from_outside(real):
    check_page(real[1], 9)
    assert "prefers-color-scheme: dark" in real[1]
    assert "3 returned" in real[1]
    assert "6 shared" in real[1]


def test_the_page_escapes_what_libraries_say():
    cells = {("a<b>", "numpy"): Cell("failed", "<script>alert('$x & \"y\"')</script>", "a < b", None),
             ("numpy", "numpy"): Cell("shared", nanoseconds=28.4)}
    text = page.html(matrix_of(cells, {"cupy": "cupy"}))
    read = check_page(text.replace("$x", ""), 2)
    assert "script" not in read.tags
    assert "a&lt;b&gt; → numpy: failed" in text
    assert "28 ns" in text
    assert "pip install cupy" in text


# ---- text ------------------------------------------------------------------------------------------------------------

READ_ONLY = "readonly memory would become writable, since {} cannot be told otherwise"
CELLS = {
    ("jax", "torch"): Cell("copied", READ_ONLY.format("torch"), "do not write", 1530.0),
    ("jax", "warp"): Cell("copied", READ_ONLY.format("warp"), "do not write", 36_000.0),
    ("jax", "jax"): Cell("returned", nanoseconds=152.4),
    ("torch", "torch"): Cell("shared", nanoseconds=2.2e6),
    ("torch", "warp"): Cell("failed", "SIGSEGV"),
    ("torch", "jax"): Cell("impossible", "no"),
}


def test_the_reasons_are_told_once_and_the_worst_first():
    assert report.reasons(matrix_of(CELLS)) == [
        ("failed", "SIGSEGV", (("torch", "warp"),)),
        ("impossible", "no", (("torch", "jax"),)),
        ("copied", READ_ONLY.format("the target") + " (do not write)", (("jax", "torch"), ("jax", "warp"))),
    ]



def test_addresses_are_no_reasons():
    cells = {("mlx", target): Cell("copied", f"data at 0x55{target} is not aligned, which {target} needs")
             for target in ("ae", "af")}
    (reason,) = report.reasons(matrix_of(cells))
    assert reason.text == "data is not aligned, which the target needs"


def test_one_reason_of_one_target_keeps_its_name():
    cells = {pair: cell for pair, cell in CELLS.items() if pair != ("jax", "warp")}
    assert report.reasons(matrix_of(cells))[-1].text == READ_ONLY.format("torch") + " (do not write)"


def test_plain_text_has_signs_times_and_reasons(capsys):
    report.show(matrix_of(CELLS), sys.stdout)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert re.search(r"^jax +\+3 1.5 µs +\+3 36 µs +-( 152 ns)$", text, re.MULTILINE)
    assert re.search(r"^torch += 2.2 ms +!1 +x2$", text, re.MULTILINE)
    assert "6 pairs: 1 returned, 1 shared, 2 copied, 0 not here, 1 impossible, 1 failed" in text
    for sign, outcome in zip("-=+.x!", OUTCOMES, strict=True):
        assert (f"{sign}  {outcome}: " in text) == (outcome != "not here")


@pytest.mark.parametrize(("some", "words"), [
    (["a", "b", "c", "d", "e"], "all"), (["a", "b", "c", "d"], "all but e"), (["a", "b"], "a, b"), (["c"], "c"),
])
def test_many_names_in_few_words(some, words):
    assert report.listed(some, ["a", "b", "c", "d", "e"]) == words


@pytest.mark.parametrize("width", [60, 90, 140, 400])
def test_the_table_fits_a_terminal(width):
    names = [f"library{number:02}" for number in range(15)]
    lines = report.table(square(names, Cell("copied", "since", "", 1234.0)), width)
    assert all(sum(len(text) for text, _ in line) <= width for line in lines)
    assert ("1.2 µs" in "".join(text for text, _ in lines[-1])) == (width == 400)
    assert len({sum(len(text) for text, _ in line) for line in lines}) == 1


@pytest.mark.needs("rich")
def test_a_terminal_has_colour_and_its_width(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    text = on_a_terminal(hostile_command("memoryview", "crashing", "numpy"), columns=70)
    assert "\x1b[32m" in text
    assert "41m" in text
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", text)
    assert max(map(len, plain.splitlines())) <= 70
    assert "SIGSEGV" in plain


def on_a_terminal(command, columns):
    """Standard output of a command that runs on a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    # As Python knows it: readline, which pytest imports, has set COLUMNS behind its back.
    environment = dict(os.environ)
    process = subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, stdin=follower, env=environment)
    os.close(follower)
    text = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:         # nobody has the other side
            break
        if not part:
            break
        text += part
    os.close(leader)
    process.wait()
    return text.decode()


@pytest.mark.parametrize(("words", "message"), [
    (["nump"], "'nump' is no library of the matrix (did you mean 'numpy'? one of numpy, "),
    (["bytearray"], "there is nothing to convert to (name a target as well)"),
    (["numpy", "--html", "/no/such/folder/page.html"], "--html: /no/such/folder/page.html: no file can be written"),
])
def test_mistakes(words, message, capsys):
    assert main(["matrix", *words]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith(f"dlbridge matrix: {message}")
    assert seen.err.count("\n") == 1


# ---- the rows, and the page in the documents -------------------------------------------------------------------------

def test_every_target_has_a_row():
    program = "import dlbridge; print(*dlbridge.targets())"     # of its own: tests register others
    targets = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    # Those whose arrays are several arrays each take no one array.
    of_parts = {library.name for library in libraries().values() if library.delivery == "forms"}
    assert set(targets.split()) - of_parts <= {row.name for row in ROWS}


@pytest.fixture
def matrix_page(monkeypatch, tmp_path):
    """The tool, with a page of its own."""
    tool = load_tool("pages/matrix_page")
    monkeypatch.setattr(tool, "PAGE", tmp_path / "matrix.md")
    return tool


def run_of(folder, cells):
    """The file of a run that found these cells."""
    path = folder / "run.json"
    path.write_text(report.as_json(matrix_of(cells)))
    return ["--run", str(path)]


def test_the_picture_is_that_of_the_page():
    tool = load_tool("pages/matrix_page")
    drawn = tool.PAGE.with_suffix(".svg").read_text()
    assert drawn == tool.picture(tool.PAGE.read_text()), "run python tools/pages matrix --draw"


def outcomes_of(table):
    """Those of the cells, line by line."""
    return [name.replace("-", " ") for name in re.findall(r'<td class="([\w-]+)">', table)]


def test_the_table_of_the_site_is_that_of_the_page_and_of_the_command():
    table = (CHECKOUT / "docs" / "matrix.html").read_text()
    style = (CHECKOUT / "dlbridge" / "matrix" / "table.html").read_text().partition("</style>")[0]
    assert table.partition("</style>")[0] == style, "run python tools/pages matrix"
    tool = load_tool("pages/matrix_page")
    assert outcomes_of(table) == [*tool.read(tool.PAGE.read_text()).values()]


def test_the_page_says_what_the_run_found(matrix_page, tmp_path):
    assert matrix_page.main(run_of(tmp_path, CELLS)) == 0
    text = matrix_page.PAGE.read_text()
    assert matrix_page.read(text) == {pair: cell.outcome for pair, cell in CELLS.items()}
    assert "| jax | `+`3 | `+`3 | `-` |" in text
    table = matrix_page.PAGE.with_suffix(".html").read_text()
    assert outcomes_of(table) == [cell.outcome for cell in CELLS.values()]
    assert {*re.findall(r'href="#([^"]+)"', table)} == {*re.findall(r'<a id="([^"]+)">', text)}
    assert max(map(len, text.splitlines())) <= 300


@pytest.mark.parametrize(("outcome", "status", "word"), [
    ("returned", 0, None), ("shared", 1, "worse"), ("copied", 1, "worse"), ("impossible", 1, "worse"),
    ("failed", 1, "worse")])
def test_the_check_names_a_pair_that_got_worse(matrix_page, tmp_path, capsys, outcome, status, word):
    matrix_page.main(run_of(tmp_path, CELLS))
    again = CELLS | {("jax", "jax"): Cell(outcome, "since")}
    assert matrix_page.main(["--check", *run_of(tmp_path, again)]) == status
    text = capsys.readouterr().out
    assert (f"{word}: jax -> jax: returned on the page, {outcome} here: since" in text) == (word is not None)
    assert f"6 pairs compared, {status} worse, 0 better; 0 of the page not compared" in text


def test_the_check_tells_what_got_better_and_counts_what_is_absent(matrix_page, tmp_path, capsys):
    matrix_page.main(run_of(tmp_path, CELLS))
    again = {("jax", "torch"): Cell("shared"), ("torch", "torch"): Cell("shared")}
    assert matrix_page.main(["--check", *run_of(tmp_path, again)]) == 0
    text = capsys.readouterr().out
    assert "better: jax -> torch: copied on the page, shared here" in text
    assert "2 pairs compared, 0 worse, 1 better; 4 of the page not compared" in text


@pytest.mark.needs("torch")
def test_nothing_here_is_worse_than_the_documents_say(matrix_page, real, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(matrix_page, "PAGE", CHECKOUT / "docs" / "matrix.md")
    path = tmp_path / "run.json"
    path.write_text(real[0])
    assert matrix_page.main(["--check", "--run", str(path)]) == 0
    assert "9 pairs compared, 0 worse" in capsys.readouterr().out
